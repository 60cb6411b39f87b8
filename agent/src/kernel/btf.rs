//! Layouts of map keys and values, read from BTF: where each field is and how large. Pure.
//!
//! 1. Two builds may have values of one size and fields in another order; a size says nothing of that.
//! 2. The object says in its BTF what it wants. A pinned map says what it is in the BTF that it was made with.
//! 3. Both are flattened to a list of fields (path, place, size), and the first difference is told.
//!
//! Names of types do not count, names of fields do: a field of another name means something else.

use std::fmt;

/// BTF's kinds of types (linux/btf.h).
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// Deeper nesting than any type of a map has.
const DEEPEST: u32 = 16;

/// One type as BTF has it.
#[derive(Debug, Clone, Copy)]
struct Type<'b> {
    name: u32,
    info: u32,
    /// Bytes, or another type's id.
    size: u32,
    /// What follows the type: members and the like.
    rest: &'b [u8],
}

impl Type<'_> {
    const fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    /// The 32-bit words behind the type, in groups.
    fn groups(&self, words: usize) -> impl Iterator<Item = Vec<u32>> {
        self.rest
            .chunks_exact(4 * words)
            .map(|group| group.chunks_exact(4).filter_map(word).collect())
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

/// One field, flattened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    path: String,
    at_bits: u64,
    bits: u64,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} bytes at byte {})",
            self.path,
            self.bits / 8,
            self.at_bits / 8
        )
    }
}

/// Keys' and values' fields.
pub type Layout = Vec<Field>;

/// The types of an object, or of a map.
#[derive(Debug)]
pub struct Btf<'b> {
    types: Vec<Type<'b>>,
    strings: &'b [u8],
}

impl<'b> Btf<'b> {
    /// Reads raw BTF of this machine's byte order; `None` if it is none.
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        let at = |offset: usize| word(bytes.get(offset..)?);
        if u16::from_ne_bytes(*bytes.first_chunk()?) != 0xeb9f {
            return None;
        }
        let header = at(4)? as usize;
        let part = |offset: usize, length: usize| {
            let from = header.checked_add(at(offset)? as usize)?;
            bytes.get(from..from.checked_add(at(length)? as usize)?)
        };
        let (mut rest, strings) = (part(8, 12)?, part(16, 20)?);
        let mut types = Vec::new();
        while !rest.is_empty() {
            let (name, info, size) = (word(rest)?, word(rest.get(4..)?)?, word(rest.get(8..)?)?);
            let count = (info & 0xffff) as usize;
            let length = match info >> 24 & 0x1f {
                kind::INT | kind::VAR | kind::DECL_TAG => 4,
                kind::ARRAY => 12,
                kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * count,
                kind::ENUM | kind::FUNC_PROTO => 8 * count,
                _ => 0,
            };
            let members = rest.get(12..12 + length)?;
            types.push(Type {
                name,
                info,
                size,
                rest: members,
            });
            rest = &rest[12 + length..];
        }
        Some(Self { types, strings })
    }

    fn name(&self, offset: u32) -> &'b str {
        let text = self.strings.get(offset as usize..).unwrap_or_default();
        let end = text.iter().position(|b| *b == 0).unwrap_or(0);
        std::str::from_utf8(&text[..end]).unwrap_or_default()
    }

    /// The type of an id, without typedefs and qualifiers.
    fn resolved(&self, mut id: u32) -> Option<Type<'b>> {
        for _ in 0..DEEPEST {
            let found = *self.types.get((id as usize).checked_sub(1)?)?;
            match found.kind() {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    id = found.size;
                }
                _ => return Some(found),
            }
        }
        None
    }

    fn flatten(&self, path: &str, id: u32, at: u64, depth: u32, out: &mut Layout) -> Option<()> {
        if depth == DEEPEST {
            return None;
        }
        let found = self.resolved(id)?;
        let bits = match found.kind() {
            kind::PTR => 64,
            kind::INT | kind::ENUM | kind::ENUM64 | kind::FLOAT | kind::STRUCT | kind::UNION => {
                u64::from(found.size) * 8
            }
            kind::ARRAY => {
                let array = found.groups(3).next()?;
                let path = format!("{path}[{}]", array[2]);
                return self.flatten(&path, array[0], at, depth + 1, out);
            }
            _ => return None,
        };
        out.push(Field {
            path: path.into(),
            at_bits: at,
            bits,
        });
        if !matches!(found.kind(), kind::STRUCT | kind::UNION) {
            return Some(());
        }
        for member in found.groups(3) {
            let (name, id, place) = (self.name(member[0]), member[1], member[2]);
            let (bit_field, place) = match found.info >> 31 {
                1 => (place >> 24, place & 0x00ff_ffff),
                _ => (0, place),
            };
            let path = if name.is_empty() {
                path.into()
            } else {
                format!("{path}.{name}")
            };
            let first = out.len();
            self.flatten(&path, id, at + u64::from(place), depth + 1, out)?;
            if bit_field > 0
                && let Some(field) = out.get_mut(first)
            {
                field.bits = u64::from(bit_field);
            }
        }
        Some(())
    }

    /// Fields of a map's key and value; `None` if one of them cannot be described.
    pub fn layout(&self, key: u32, value: u32) -> Option<Layout> {
        let mut out = Vec::new();
        self.flatten("key", key, 0, 0, &mut out)?;
        self.flatten("value", value, 0, 0, &mut out)?;
        Some(out)
    }

    /// Fields of the key and value that a map of this object is declared with; `None` for a map without types.
    pub fn declared(&self, map: &str) -> Option<Layout> {
        let variable = self
            .types
            .iter()
            .find(|t| t.kind() == kind::VAR && self.name(t.name) == map)?;
        let declaration = self.resolved(variable.size)?;
        // `__type(key, T)` is a member `T *key`.
        let member = |wanted: &str| {
            let member = declaration.groups(3).find(|m| self.name(m[0]) == wanted)?;
            Some(self.resolved(member[1])?.size)
        };
        self.layout(member("key")?, member("value")?)
    }
}

/// The first difference of two layouts, in words.
pub fn difference(is: &Layout, wants: &Layout) -> Option<String> {
    if is == wants {
        return None;
    }
    let (is, wants) = match is
        .iter()
        .zip(wants)
        .find(|(a, b)| a.bits != b.bits || a != b)
    {
        Some((a, b)) => (a.to_string(), b.to_string()),
        // One is longer.
        None => match (is.get(wants.len()), wants.get(is.len())) {
            (Some(more), _) => (more.to_string(), "nothing more".into()),
            (_, Some(more)) => ("nothing more".into(), more.to_string()),
            _ => return None,
        },
    };
    Some(format!("it has {is} where this bestbyd wants {wants}"))
}

/// A short name of a layout, for where the kernel does not show BTF.
pub fn fingerprint(layout: &Layout) -> String {
    let text: Vec<String> = layout
        .iter()
        .map(|f| format!("{}@{}+{}", f.path, f.at_bits, f.bits))
        .collect();
    crate::fingerprint(text.join("\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The BTF section of an ELF object: found by its header, which is followed by its own length.
    fn section(object: &[u8]) -> Vec<u8> {
        let magic = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
        let at = object.windows(8).position(|w| w == magic).unwrap();
        object[at..].to_vec()
    }

    /// Swaps two names of one length wherever they stand.
    fn renamed(btf: &[u8], a: &str, b: &str) -> Vec<u8> {
        let (a, b) = (format!("\0{a}\0"), format!("\0{b}\0"));
        let place = |name: &str| {
            btf.windows(name.len())
                .position(|w| w == name.as_bytes())
                .unwrap()
        };
        let (at_a, at_b) = (place(&a), place(&b));
        let mut out = btf.to_vec();
        out[at_a..at_a + b.len()].copy_from_slice(b.as_bytes());
        out[at_b..at_b + a.len()].copy_from_slice(a.as_bytes());
        out
    }

    #[test]
    fn layout_of_sessions_has_each_field_at_its_offset() {
        let bytes = section(bestby_bpf::MAPS);
        let layout = Btf::parse(&bytes).unwrap().declared("bb_sessions").unwrap();
        let find = |path: &str| layout.iter().find(|f| f.path == path).unwrap();
        let offset = std::mem::offset_of!(bestby_bpf::abi::bb_session, rate) as u64;
        assert_eq!(find("value.rate").at_bits, offset * 8);
        assert_eq!(find("value.key.addr[16]").bits, 8);
        assert_eq!(
            find("value").bits,
            8 * size_of::<bestby_bpf::abi::bb_session>() as u64
        );
        assert_eq!(find("key").bits, 32);
    }

    #[test]
    fn two_swapped_fields_of_one_size_are_another_layout() {
        let ours = section(bestby_bpf::MAPS);
        let theirs = renamed(&ours, "user", "turn");
        let layout = |bytes: &[u8]| Btf::parse(bytes).unwrap().declared("bb_sessions").unwrap();
        let (is, wants) = (layout(&theirs), layout(&ours));
        assert_eq!(difference(&wants, &wants), None);
        let said = difference(&is, &wants).unwrap();
        assert!(
            said.contains("value.key.turn") && said.contains("value.key.user"),
            "{said}"
        );
        assert_ne!(fingerprint(&is), fingerprint(&wants));
        // A map that has neither field is what it was.
        let rtts = |bytes: &[u8]| Btf::parse(bytes).unwrap().declared("bb_rtts").unwrap();
        assert_eq!(difference(&rtts(&theirs), &rtts(&ours)), None);
    }

    #[test]
    fn untyped_map_and_malformed_btf_have_no_layout() {
        let bytes = section(bestby_bpf::MAPS);
        assert_eq!(Btf::parse(&bytes).unwrap().declared("bb_events"), None);
        assert_eq!(Btf::parse(&bytes).unwrap().declared("nonesuch"), None);
        for length in 0..bytes.len().min(400) {
            let _ = Btf::parse(&bytes[..length]);
        }
        assert!(Btf::parse(b"").is_none() && Btf::parse(&[0; 64]).is_none());
    }

    #[test]
    fn every_map_of_the_qdisc_has_a_layout() {
        let bytes = section(bestby_bpf::QDISC);
        let btf = Btf::parse(&bytes).unwrap();
        for (map, _) in bestby_bpf::qdisc_sizes(10, 1) {
            let layout = btf.declared(map).unwrap();
            assert!(
                layout.iter().any(|f| f.path.starts_with("value.")),
                "{map}: {layout:?}"
            );
        }
    }
}
