# SPDX-License-Identifier: MIT OR Apache-2.0
# Called by ./dev, which installs the tools used here.

set shell := ["sh", "-euc"]
set positional-arguments

export CLANG_FORMAT := env("CLANG_FORMAT", "clang-format-19")

# ours; vmlinux.h is not
c_files := "find bpf tests/vm -name target -prune -o \\( -name '*.c' -o -name 'bb*.h' \\) -print"

# made by ./dev
python := justfile_directory() / "target/tools/bin/python"
export PYTHONPATH := justfile_directory() / "bench"

# the recipes
default:
    @'{{just_executable()}}' --list --unsorted

# bestbyd, bestby and the lab, as a user would run them
build:
    cargo build --release --workspace --bins

# a Debian package in target/deb, checked by lintian
deb:
    #!/bin/sh
    set -eu
    cargo build --release -p bestby-agent -p bestby-cli --bins
    package=$(agent/packaging/deb target/release target/deb)
    lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$package"
    printf '%s\n' "$package"

# regenerates bpf/src/abi.rs from bpf/include/bb_abi.h
gen: _gen
    mv target/abi.rs bpf/src/abi.rs

_gen:
    mkdir -p target
    cargo build --quiet --workspace --example gen-abi
    target/debug/examples/gen-abi >target/abi.rs

# formats Rust and C
fmt:
    cargo fmt --all
    "$CLANG_FORMAT" -i $({{c_files}})

# formatting, shell scripts, generated files, clippy; any finding is an error
lint:
    cargo fmt --all --check
    "$CLANG_FORMAT" --dry-run -Werror $({{c_files}})
    shellcheck dev .ci/run bench/two-cpus tests/vm/run tests/vm/kernel tests/vm/image tests/vm/suite tests/vm/package tests/vm/selftest agent/packaging/deb
    '{{just_executable()}}' _gen
    diff -u bpf/src/abi.rs target/abi.rs || { echo "bpf/src/abi.rs is not what 'just gen' makes of bb_abi.h" >&2; exit 1; }
    cargo clippy --quiet --workspace --all-targets -- -D warnings
    '{{python}}' -m ruff check --quiet bench/report agent/packaging
    '{{python}}' -m ruff format --quiet --check bench/report agent/packaging
    '{{python}}' -m ruff check --quiet --config bench/report/ruff.toml tests/vm/walk
    '{{python}}' -m ruff format --quiet --check --config bench/report/ruff.toml tests/vm/walk
    '{{python}}' -m report docs --check

# puts the tables into the pages with figures, and draws docs/gain.svg
docs:
    '{{python}}' -m report docs

# tests that need no privilege; part of a test's name selects
test-unit *FILTER:
    tests/vm/suite unit "$@"

# tests with namespaces on this kernel, as root
test-root *FILTER:
    tests/vm/suite root "$@"

# tests in VMs: the BPF qdisc on the newest kernel, the agent on 6.12, the verifier on 6.12 and 6.1, too
test-vm *FILTER:
    tests/vm/suite vm "$@"

# the Debian package under a real systemd: install, upgrade, remove, purge; on three kernels unless some are named; then docs/operating.md, walked
test-deb *KERNELS:
    tests/vm/suite package ${*:-newest 6.12 6.1}

# lint and all tests; skipping a test is a failure
test:
    JUST='{{just_executable()}}' tests/vm/suite all

# what .ci/run checks
ci: test

# any command in a VM, e.g. `just vm --kernel 6.12 uname -r`
vm *ARGS:
    tests/vm/run "$@"

# real media over a congested link, without and with bestby; --vm: in a VM, mode qdisc
demo *ARGS: build
    #!/bin/sh
    set -eu
    sudo='sudo -E'
    case " $(id -u) $* " in " 0 "* | *" --vm "*) sudo= ;; esac
    exec $sudo target/release/bestby-lab demo "$@"

# instructions per packet and memory, in virtual time
bench-core *ARGS: build
    tests/vm/run --icount --timeout 3000 -- target/release/bestby-lab core "$@"

# the lab's quick profile in virtual time; ends with the page's path
bench *ARGS: build
    #!/bin/sh
    set -eu
    status=0
    target/release/bestby-lab run --vm --if-changed anew --out target/bench/quick "$@" bench/scenarios/quick.toml || status=$?
    '{{python}}' -m report page target/bench/quick
    exit $status

# tables and pages of results: `./dev report --help`
report *ARGS:
    '{{python}}' -m report "$@"

# all scenarios but the simulated one, with the papers' repetitions: half a day to a day on two cores; interrupted, it goes on
bench-full: build
    #!/bin/sh
    set -eu
    status=0 run='target/release/bestby-lab run --vm --out target/bench/full'
    # DCCP left the kernel after 6.15.
    $run --kernel 6.12 bench/scenarios/sfdps-dccp.toml || status=$?
    $run $(ls bench/scenarios/*.toml | grep -v -e /sfdps-dccp -e /simulated) || status=$?
    '{{python}}' -m report page target/bench/full
    exit $status

# what this machine can do
doctor *ARGS: build
    target/release/bestby doctor "$@"
