//! Which flags may a task hand to the compiler?
//!
//! A task's author is a stranger: his flags may change how code is generated, and nothing else.

/// The flags of a task that names none.
pub(crate) const DEFAULT: [&str; 2] = ["-O3", "-march=native"];

/// What is allowed, for people.
pub(crate) const EXPECTED: &str = "expected flags that steer optimization, warnings or macros: -O…, -m…, -f…, -W…, -g…, -D… or -U…, without paths, \
     plugins or linker options (the language sets -std)";

/// The flags of a task in CUDA that names none; the architecture is the GPU's.
pub(crate) const CUDA_DEFAULT: [&str; 1] = ["-O3"];

/// The flags of a task in HIP that names none; the architecture is the task's.
pub(crate) const HIP_DEFAULT: [&str; 1] = ["-O3"];

/// What is allowed in CUDA, for people.
pub(crate) const CUDA_EXPECTED: &str = "expected flags of nvcc that steer optimization or macros: -O…, -D…, -U…, --use_fast_math, --maxrregcount=…, \
     --fmad=…, --ftz=…, --prec-div=…, --prec-sqrt=…, --extended-lambda, --expt-extended-lambda, \
     --expt-relaxed-constexpr, -lineinfo or -std=c++20 (the workshop sets -arch, and -std=c++17 where no other is given)";

const CUDA_ALLOWED: [&str; 8] =
    ["-O", "-D", "-U", "--maxrregcount=", "--fmad=", "--ftz=", "--prec-div=", "--prec-sqrt="];
const CUDA_WORDS: [&str; 7] = [
    "--use_fast_math",
    "--extended-lambda",
    "--expt-extended-lambda",
    "--expt-relaxed-constexpr",
    "-lineinfo",
    "-std=c++17",
    "-std=c++20",
];

const ALLOWED: [&str; 7] = ["-O", "-m", "-f", "-W", "-g", "-D", "-U"];

/// Of these, the ones that read or write a file, run a program, or hand a flag to one.
const REFUSED: [&str; 19] = [
    "-fplugin",
    "-fpass-plugin",
    "-fmodule",
    "-fdump",
    "-fprofile",
    "-fauto-profile",
    "-ftest-coverage",
    "-ftime-trace",
    "-fdiagnostics-format",
    "-fcompare-debug",
    "-fuse-ld",
    "-fsanitize",
    "-fstack-usage",
    "-fcallgraph",
    "-fopt-info",
    "-fsave",
    "-Wl,",
    "-Wa,",
    "-Wp,",
];

/// Whether a flag changes only how code is generated: none reads or writes a file or runs a program.
pub(crate) fn is_harmless(flag: &str) -> bool {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| flag.starts_with(prefix));
    let plain = flag.chars().all(|c| c.is_ascii_graphic() && c != '/' && c != '@');
    plain && starts(&ALLOWED) && !starts(&REFUSED)
}

/// The same of clang for an AMD GPU, whose architecture is the task's.
pub(crate) fn is_harmless_in_hip(flag: &str) -> bool {
    let others = ["-mllvm", "-march", "-mcpu", "-fgpu-rdc", "-flto"];
    is_harmless(flag) && !others.iter().any(|prefix| flag.starts_with(prefix))
}

/// The same of nvcc, which spells options in its own way.
pub(crate) fn is_harmless_in_cuda(flag: &str) -> bool {
    let plain = flag.chars().all(|c| c.is_ascii_graphic() && !"/@,\\'\"`$;&|<>".contains(c));
    plain && (CUDA_WORDS.contains(&flag) || CUDA_ALLOWED.iter().any(|prefix| flag.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_cannot_have_the_compiler_run_or_write_files() {
        for flag in [
            "-fplugin=./x.so",
            "-fpass-plugin=x.so",
            "-fmodule-mapper=|sh",
            "-ftime-trace=x",
            "-o/etc/x",
            "@args",
            "-Wl,-rpath,x",
            "-wrapper",
            "-include",
            "-I.",
            "-B.",
            "-specs=x",
            "-O3 -o x",
            "-DX=\0",
            "",
        ] {
            assert!(!is_harmless(flag), "{flag}");
        }
        for flag in ["-march=native", "-ffast-math", "-DN=4", "-fopenmp-simd", "-Wno-psabi", "-funroll-loops"] {
            assert!(is_harmless(flag), "{flag}");
        }
        assert!(DEFAULT.into_iter().all(is_harmless));
    }

    #[test]
    fn nor_can_a_task_in_cuda() {
        for flag in [
            "-Xcompiler=-fplugin=x.so",
            "-ccbin=x",
            "--dryrun",
            "-O3,-x",
            "-I.",
            "-odir",
            "--options-file=x",
            "-std=c++20 -x",
        ] {
            assert!(!is_harmless_in_cuda(flag), "{flag}");
        }
        for flag in ["-O3", "--use_fast_math", "--maxrregcount=64", "-DN=4", "--fmad=false", "-std=c++20"] {
            assert!(is_harmless_in_cuda(flag), "{flag}");
        }
    }
}
