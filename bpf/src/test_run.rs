//! `BPF_PROG_TEST_RUN`: a program at tc, run on one frame that no interface sees.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct __sk_buff` (linux/bpf.h), as a test run takes and returns it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[allow(missing_docs)]
pub struct SkBuff {
    pub len: u32,
    pub pkt_type: u32,
    pub mark: u32,
    pub queue_mapping: u32,
    pub protocol: u32,
    pub vlan_present: u32,
    pub vlan_tci: u32,
    pub vlan_proto: u32,
    pub priority: u32,
    pub ingress_ifindex: u32,
    pub ifindex: u32,
    pub tc_index: u32,
    pub cb: [u32; 5],
    pub hash: u32,
    pub tc_classid: u32,
    pub rest: [u32; 17],
    pub flow_keys: u64,
    pub tstamp: u64,
    pub wire_len: u32,
    pub gso_segs: u32,
    pub sk: u64,
    pub gso_size: u32,
    pub tstamp_type: u32,
    pub hwtstamp: u64,
}

/// What a program made of a frame.
#[derive(Clone, Debug)]
pub struct TestRun {
    /// What the program returned.
    pub verdict: i32,
    /// The context afterwards.
    pub skb: SkBuff,
    /// The frame afterwards; of the last run.
    pub frame: Vec<u8>,
}

/// Room for what a program adds to a frame, bytes.
const ROOM: usize = 256;

/// Runs a program at tc on a frame, so many times. `skb.ifindex` is a device of the caller's network namespace.
///
/// # Errors
/// The kernel refuses the frame (shorter than 14 bytes, longer than a page holds), the context, or the program.
pub fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    skb: SkBuff,
    times: u32,
) -> io::Result<TestRun> {
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut after = SkBuff::default();
    let mut out = vec![0u8; frame.len() + ROOM];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: u32::try_from(frame.len()).map_err(too_long)?,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: u32::try_from(out.len()).map_err(too_long)?,
        ctx_in: (&raw const skb).cast(),
        ctx_size_in: size_of::<SkBuff>() as u32,
        ctx_out: (&raw mut after).cast(),
        ctx_size_out: size_of::<SkBuff>() as u32,
        repeat: i32::try_from(times).map_err(too_long)?,
        ..Default::default()
    };
    // SAFETY: every pointer is valid for the size given beside it, and outlives the call.
    let status =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if status != 0 {
        return Err(io::Error::from_raw_os_error(-status));
    }
    out.truncate(options.data_size_out as usize);
    Ok(TestRun {
        verdict: options.retval.cast_signed(),
        skb: after,
        frame: out,
    })
}
