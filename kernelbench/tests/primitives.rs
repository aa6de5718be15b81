//! Do scripts print primitives that are right, is what misbehaves named, and do allowed swaps change no bit?
#![cfg(target_arch = "x86_64")]
use std::{fs, process::Command, sync::OnceLock};
use warpsmith_kernelbench::{
    Bindings, Failure, Operator, Parameter, Primitives, Space, Workshop,
    assembly::{Assembly, Isa, Orders, swap_in},
    cpu,
    native::{Native, NativeOptions},
};

const SKETCH: &str = include_str!("../../examples/operators/gemm_avx512/sketch.cpp");
const AVX2: &str = include_str!("primitives/avx2.py");
const AVX512: &str = include_str!("../../examples/operators/gemm_avx512/primitives.py");

fn workshop() -> &'static Native {
    static WORKSHOP: OnceLock<(tempfile::TempDir, Native)> = OnceLock::new();
    let made = WORKSHOP.get_or_init(|| {
        let cache = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_warpsmith-kernel").into();
        let options = NativeOptions::new(program, vec![], cache.path().to_owned(), cpu::machine(None));
        (cache, Native::new(options))
    });
    &made.1
}

fn bindings(values: &[(&str, i64)]) -> Bindings {
    values.iter().map(|(name, value)| ((*name).to_owned(), Parameter::Number(*value))).collect()
}

async fn printed(script: &str, values: &[(&str, i64)]) -> Result<String, String> {
    let told = workshop().print(script, &bindings(values)).await.unwrap();
    told.map_err(|failure| match failure {
        Failure::Build { log } => log,
        other => panic!("{other}"),
    })
}

const SIX: [(&str, i64); 6] = [("MR", 6), ("NR", 16), ("PREFETCH", 8), ("BM", 48), ("BN", 64), ("BK", 32)];

#[tokio::test]
async fn a_script_prints_with_its_parameters_and_what_it_may_not_do_is_named() {
    assert_eq!(printed("print(MR * NR)", &SIX).await.unwrap(), "96\n");
    for (script, why) in [
        ("print(MR", "primitives.py"),
        ("x = 1\nraise ValueError('too few registers')", "line 2"),
        ("while True: pass", "did not end within 10 s"),
        ("print('x' * (5 << 20))", "printed more than 4 MiB"),
        ("x = bytearray(1 << 30)", "MemoryError"),
        ("open('out', 'w')", "Permission"),
        ("open('/tmp/warpsmith-out', 'w')", "Permission"),
        ("import socket; socket.socket()", "primitives.py"),
        ("import os; os.fork()", "may start no process"),
        ("import subprocess; subprocess.run(['true'])", "primitives.py"),
    ] {
        let told = printed(script, &SIX).await.unwrap_err();
        assert!(told.starts_with("primitives.py: ") && told.contains(why), "{script}: {told}");
    }
}

/// A program that multiplies with a kernel and prints every byte of the result.
fn object(operator: &Operator, assembly: &Assembly, folder: &std::path::Path, name: &str) -> String {
    let source = operator.candidate(&bindings(&SIX), None, &Orders::new()).unwrap();
    let sketch = source.written_out(&Space::default()).unwrap()[0].text.clone();
    let main = "#include <cstdint>\n#include <cstdio>\n";
    let calls = "int main() {\n    const int64_t m = 53, n = 71, k = 45;\n    static float a[53 * 45], b[45 * 71], c[53 * 71];\n    \
                 uint32_t s = 7;\n    for (float &x : a) x = (s = s * 1664525u + 1013904223u) / 4294967296.0f - 0.5f;\n    \
                 for (float &x : b) x = (s = s * 1664525u + 1013904223u) / 4294967296.0f - 0.5f;\n    \
                 gemm(c, a, b, m, n, k);\n    double worst = 0;\n    for (int i = 0; i < m; ++i)\n        for (int j = 0; j < n; ++j) {\n            \
                 double sum = 0;\n            for (int p = 0; p < k; ++p) sum += (double)a[i * k + p] * b[p * n + j];\n            \
                 double off = sum - c[i * n + j];\n            worst = off * off > worst ? off * off : worst;\n        }\n    \
                 uint64_t hash = 14695981039346656037u;\n    for (float &x : c) { uint32_t bits; __builtin_memcpy(&bits, &x, 4); hash = (hash ^ bits) * 1099511628211u; }\n    \
                 printf(\"%s %016lx\\n\", worst < 1e-9 ? \"right\" : \"wrong\", hash);\n}\n";
    let file = folder.join(format!("{name}.cpp"));
    fs::write(&file, format!("{main}{}{sketch}{calls}", assembly.in_c())).unwrap();
    let program = folder.join(name);
    let built = Command::new("g++").args(["-O1", "-std=c++17", "-o"]).arg(&program).arg(&file).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap()
}

fn operator(script: &str) -> Operator {
    Operator { sketch: SKETCH.into(), tuning: Space::default(), primitives: Primitives::Script(script.into()) }
}

#[tokio::test]
async fn a_thousand_allowed_swaps_change_no_bit_of_the_output() {
    let folder = tempfile::tempdir().unwrap();
    for (isa_flag, script) in [("avx2", AVX2), ("avx512f", AVX512)] {
        if !fs::read_to_string("/proc/cpuinfo").unwrap().contains(isa_flag) {
            continue;
        }
        let text = printed(script, &SIX).await.unwrap();
        let first = Assembly::parse(Isa::X86, &text).unwrap();
        let expected = object(&operator(script), &first, folder.path(), "first");
        assert!(expected.starts_with("right"), "{isa_flag}: {expected}");
        let (mut now, mut orders, mut swaps, mut refused, mut draw) = (first.clone(), Orders::new(), 0, 0, 1_u64);
        let mut next = |below: usize| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (draw >> 33) as usize % below
        };
        while swaps < 1000 {
            let block = &first.blocks()[next(first.blocks().len())];
            let (one, other) = (next(block.len()), next(block.len()));
            match now.swapped(&block.name, one, other) {
                Ok(swapped) => {
                    now = swapped;
                    swap_in(&mut orders, block, one, other);
                    swaps += 1;
                }
                Err(_) => refused += 1,
            }
            if swaps % 100 == 0 && swaps > 0 {
                assert_eq!(first.ordered(&orders).unwrap().in_c(), now.in_c());
            }
            if swaps % 250 == 249 {
                assert_eq!(object(&operator(script), &now, folder.path(), "swapped"), expected, "after {swaps}");
            }
        }
        assert_eq!(object(&operator(script), &now, folder.path(), "swapped"), expected, "{isa_flag}");
        assert!(refused > 0 && now.in_c() != first.in_c(), "{refused} were refused");
    }
}
