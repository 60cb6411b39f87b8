//! What the host allows send buffers.

/// The kernel's own default, where /proc/sys does not say it.
const WMEM_MAX: u32 = 212_992;

/// net.core.wmem_max: the most that SO_SNDBUF may ask for.
pub(crate) fn wmem_max() -> u32 {
    std::fs::read_to_string("/proc/sys/net/core/wmem_max")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(WMEM_MAX)
}
