//! How much stack each chain of calls takes, read from the compiled objects as the kernel's verifier
//! reads it. The kernel gives a chain 512 bytes. One more spilled variable in a function that many
//! share, or another clang, must not be what makes an object too deep: [`MOST`] is below that.
//!
//! The kernel rounds each function's stack up: to 32 bytes, one at least, before v6.12 and
//! without JIT; to 16 since (`round_up_stack_depth`). Objects that older kernels run are counted
//! by 32.

#![allow(clippy::unwrap_used)] // helpers of tests

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    process::Command,
};

use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex, SymbolKind,
};

/// Bytes of a chain. What is above it fails, so that the next change has some left.
const MOST: u32 = 480;
/// What the kernel refuses.
const KERNEL: u32 = 512;

/// A function: its own stack, and what it calls.
#[derive(Default)]
struct Function {
    bytes: u32,
    calls: BTreeSet<String>,
}

type Graph = BTreeMap<String, Function>;

/// Where registers point into the stack, instruction by instruction; the lowest of all accesses.
struct Frame {
    lowest: i64,
    at: HashMap<u8, i64>,
}

impl Frame {
    fn new() -> Self {
        Self {
            lowest: 0,
            at: HashMap::from([(10, 0)]),
        }
    }

    fn touch(&mut self, register: u8, offset: i64) {
        if let Some(base) = self.at.get(&register) {
            self.lowest = self.lowest.min(base + offset);
        }
    }

    /// One instruction of 8 bytes, but for calls.
    fn step(&mut self, insn: &[u8]) {
        let (code, to, from) = (insn[0], insn[1] & 15, insn[1] >> 4);
        let offset = i64::from(i16::from_le_bytes([insn[2], insn[3]]));
        let immediate = i64::from(i32::from_le_bytes(insn[4..8].try_into().unwrap()));
        match (code & 7, code) {
            // ldx
            (1, _) => {
                self.touch(from, offset);
                self.at.remove(&to);
            }
            // st, stx and atomic
            (2 | 3, _) => self.touch(to, offset),
            // to = from
            (7, 0xBF) => match self.at.get(&from) {
                Some(&at) => drop(self.at.insert(to, at)),
                None => drop(self.at.remove(&to)),
            },
            // to += immediate
            (7, 0x07) => {
                if let Some(at) = self.at.get_mut(&to) {
                    *at += immediate;
                    self.lowest = self.lowest.min(*at);
                }
            }
            (0 | 4 | 7, _) if to != 10 => drop(self.at.remove(&to)),
            _ => {}
        }
    }
}

/// The functions of an object, with the calls between them.
fn graph(object: &[u8]) -> Graph {
    let file = object::File::parse(object).unwrap();
    let mut starts = HashMap::<(SectionIndex, u64), String>::new();
    for symbol in file.symbols() {
        if symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0 {
            let section = symbol.section_index().unwrap();
            starts.insert(
                (section, symbol.address()),
                symbol.name().unwrap().to_owned(),
            );
        }
    }
    let mut graph = Graph::new();
    for symbol in file.symbols() {
        let name = symbol.name().unwrap();
        let Some(section) = symbol.section_index() else {
            continue;
        };
        if starts
            .get(&(section, symbol.address()))
            .is_none_or(|at| at != name)
        {
            continue;
        }
        let code = file.section_by_index(section).unwrap();
        let relocations: HashMap<u64, _> = code.relocations().collect();
        let text = code.data().unwrap();
        let mut function = Function::default();
        let mut frame = Frame::new();
        let mut at = symbol.address();
        while at < symbol.address() + symbol.size() {
            let insn = &text[at as usize..at as usize + 8];
            // call; of a function of this object, or of a kfunc, whose symbol has no section
            if insn[0] == 0x85 {
                if insn[1] >> 4 == 1 {
                    let ahead = i64::from(i32::from_le_bytes(insn[4..8].try_into().unwrap()));
                    let target = match relocations.get(&at).map(|r| r.target()) {
                        Some(RelocationTarget::Symbol(index)) => {
                            let called = file.symbol_by_index(index).unwrap();
                            let whole = called.kind() == SymbolKind::Section;
                            let behind = if whole { (ahead + 1) * 8 } else { 0 };
                            called
                                .section_index()
                                .map(|s| (s, called.address().wrapping_add_signed(behind)))
                        }
                        _ => Some((section, (at + 8).wrapping_add_signed(ahead * 8))),
                    };
                    if let Some(target) = target {
                        function.calls.insert(starts[&target].clone());
                    }
                }
                frame.at.retain(|register, _| *register > 5);
            } else {
                frame.step(insn);
            }
            // A constant of 64 bits takes the place of two.
            at += if insn[0] == 0x18 { 16 } else { 8 };
        }
        function.bytes = u32::try_from(-frame.lowest).unwrap();
        graph.insert(name.to_owned(), function);
    }
    graph
}

/// The deepest chain from this function on: its bytes as the kernel rounds them, and its functions.
fn deepest(graph: &Graph, name: &str, round: u32) -> (u32, Vec<String>) {
    let function = &graph[name];
    // What rounds to 32 is the interpreter's, which has no frame without a stack.
    let own = function
        .bytes
        .max(u32::from(round == 32))
        .next_multiple_of(round);
    let below = function
        .calls
        .iter()
        .map(|call| deepest(graph, call, round));
    let (bytes, mut chain) = below.max().unwrap_or_default();
    chain.insert(0, format!("{name} {}", function.bytes));
    (own + bytes, chain)
}

/// Of each program of an object: the functions that nobody calls.
fn chains(object: &[u8], round: u32) -> Vec<(u32, Vec<String>)> {
    let graph = graph(object);
    let called: BTreeSet<_> = graph.values().flat_map(|f| f.calls.iter()).collect();
    let programs = graph.keys().filter(|name| !called.contains(name));
    programs.map(|name| deepest(&graph, name, round)).collect()
}

#[test]
fn no_chain_of_calls_is_too_deep() {
    let mut too_deep = String::new();
    for (name, object, round) in [
        ("classify", bestby_bpf::CLASSIFY, 32),
        ("leaf", bestby_bpf::LEAF, 32),
        ("segment", bestby_bpf::SEGMENT, 32),
        ("sockopt", bestby_bpf::SOCKOPT, 32),
        ("rtt", bestby_bpf::RTT, 32),
        ("answer", bestby_bpf::ANSWER, 32),
        ("real_hooks", bestby_bpf::REAL_HOOKS, 32),
        ("real", bestby_bpf::REAL, 32),
        ("qdisc", bestby_bpf::QDISC, 16), // v6.16 and its JIT
    ] {
        let chains = chains(object, round);
        assert!(!chains.is_empty(), "{name}: no program");
        for (bytes, chain) in chains {
            let line = format!("{name}: {bytes} bytes: {}", chain.join(" > "));
            println!("{line}");
            if bytes > MOST {
                writeln!(too_deep, "{line}").unwrap();
            }
        }
    }
    assert!(
        too_deep.is_empty(),
        "more than {MOST} bytes of stack; the kernel refuses {KERNEL}:\n{too_deep}\
         Keep what a packet needs in struct bb_work or bbq_instance, or call from one level less."
    );
}

/// A program of three functions, the first of which has so many bytes on its stack.
fn compile(bytes: u32) -> Vec<u8> {
    let source = format!(
        "#define own static __attribute__((noinline))
        own int third(int n) {{ volatile char at[208] = {{}}; return at[n & 63]; }}
        __attribute__((noinline)) int second(int n) {{ return third(n + 1) + third(n); }}
        __attribute__((section(\"classifier\"))) int first(int *n) {{
            volatile long at[{}] = {{}};
            at[*n & 3] = 1;
            return second(at[1]);
        }}",
        bytes / 8
    );
    let clang = std::env::var("BESTBY_CLANG").unwrap_or_else(|_| "clang-19".into());
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (code, out) = (
        dir.join(format!("stack{bytes}.c")),
        dir.join(format!("stack{bytes}.o")),
    );
    std::fs::write(&code, source).unwrap();
    let done = Command::new(clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-c"])
        .arg(&code)
        .arg("-o")
        .arg(&out)
        .status()
        .unwrap();
    assert!(done.success());
    std::fs::read(out).unwrap()
}

/// Beside it: an object that is too deep is found, across sections, with its chain.
#[test]
fn a_chain_that_is_too_deep_is_found() {
    let [(bytes, chain)] = &chains(&compile(240), 32)[..] else {
        panic!("one program");
    };
    assert_eq!(chain, &["first 240", "second 0", "third 208"]);
    assert_eq!(*bytes, 256 + 32 + 224, "rounded as 6.1 does");
    assert!(*bytes > MOST);
    let by_16 = chains(&compile(240), 16);
    assert_eq!(by_16[0].0, 240 + 208, "rounded as 6.16 does");
    assert!(by_16[0].0 <= MOST);
    let less = chains(&compile(200), 32);
    assert!(less[0].0 <= MOST, "{less:?}");
}
