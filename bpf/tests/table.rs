//! The protocol of `include/bb_table.h` and `include/bb_answer.h` under all interleavings of two
//! and three CPUs (`src/table_native.c`), and the hash of keys.

use std::{collections::HashSet, ffi::CStr, ffi::c_char, sync::Mutex};

use proptest::prelude::*;

// Links the archives that hold the functions below.
use bestby_bpf as _;

type Explore = unsafe extern "C" fn(i32, *mut u32) -> *const c_char;

unsafe extern "C" {
    fn bbn_explore(scene: i32, count: *mut u32) -> *const c_char;
    fn bbn_explore_0(scene: i32, count: *mut u32) -> *const c_char;
    fn bbn_explore_1(scene: i32, count: *mut u32) -> *const c_char;
    fn bbn_explore_2(scene: i32, count: *mut u32) -> *const c_char;
    fn bbn_explore_3(scene: i32, count: *mut u32) -> *const c_char;
    fn bbn_explore_4(scene: i32, count: *mut u32) -> *const c_char;
    fn bbn_explore_5(scene: i32, count: *mut u32) -> *const c_char;
    fn bbn_hash_key(words: *const u64, count: u32, seed: u64) -> u64;
}

/// The explorer keeps its state in globals.
static ONE: Mutex<()> = Mutex::new(());

/// What was found wrong in each scene, and how many states were looked at.
fn explore(with: Explore) -> Vec<(String, u32)> {
    let _one = ONE.lock();
    let mut found = Vec::new();
    for scene in 0.. {
        let mut count = 0;
        // SAFETY: `count` outlives the call; only one thread is here at a time.
        let fault = unsafe { with(scene, &raw mut count) };
        if fault.is_null() {
            break;
        }
        // SAFETY: a string constant of the C file.
        let fault = unsafe { CStr::from_ptr(fault) };
        found.push((fault.to_string_lossy().into_owned(), count));
    }
    found
}

#[test]
fn table_is_consistent_under_all_interleavings() {
    let found = explore(bbn_explore);
    for (scene, (fault, states)) in found.iter().enumerate() {
        println!("scene {scene}: {states} states {fault}");
        assert_eq!(fault, "", "scene {scene}");
        assert!(*states > 50, "scene {scene} was not explored");
    }
    assert!(found.len() >= 12);
}

#[test]
fn table_without_one_protocol_step_is_found_inconsistent() {
    let mutants: [(Explore, &str); 6] = [
        (bbn_explore_0, "session"),
        (bbn_explore_1, "session"),
        (bbn_explore_2, "session"),
        (bbn_explore_3, "entries"),
        (bbn_explore_4, "entries"),
        (bbn_explore_5, "answer"),
    ];
    for (number, (mutant, expected)) in mutants.into_iter().enumerate() {
        let found: HashSet<String> = explore(mutant)
            .into_iter()
            .map(|(fault, _)| fault)
            .filter(|fault| !fault.is_empty())
            .collect();
        println!("mutant {number}: {found:?}");
        assert!(
            found.iter().any(|fault| fault.contains(expected)),
            "mutant {number} passes: {found:?}"
        );
    }
}

fn hash(words: &[u64], seed: u64) -> u64 {
    // SAFETY: reads exactly these words.
    unsafe { bbn_hash_key(words.as_ptr(), words.len() as u32, seed) }
}

#[test]
fn hash_of_different_keys_differs() {
    let mut seen = HashSet::new();
    for key in 0..10_000u64 {
        assert!(seen.insert(hash(&[key, 0, 0, 0], 0)), "key {key}");
    }
}

proptest! {
    /// A difference that one multiplication would keep where it is, whatever its factor.
    #[test]
    fn hash_of_keys_that_differ_in_their_highest_bits_differs(
        key in any::<[u64; 6]>(),
        seed in any::<u64>(),
        word in 0usize..5,
    ) {
        let mut other = key;
        other[word] ^= 1 << 63;
        other[word + 1] ^= 1 << 63 | 1 << 31;
        prop_assert_ne!(hash(&key, seed), hash(&other, seed));
    }

    /// Where a key lies depends on the seed.
    #[test]
    fn hash_depends_on_the_seed(key in any::<[u64; 4]>(), seed in any::<u64>()) {
        prop_assert_ne!(hash(&key, seed), hash(&key, seed ^ 1 << (key[0] & 63)));
    }
}
