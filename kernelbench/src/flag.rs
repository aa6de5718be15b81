//! Which flags may a task hand to the compiler?
//!
//! A task's author is a stranger: his flags may change how code is generated, and nothing else.

/// The flags of a task that names none.
pub(crate) const DEFAULT: [&str; 2] = ["-O3", "-march=native"];

/// What is allowed, for people.
pub(crate) const EXPECTED: &str = "expected flags that steer optimization, warnings or macros: -O…, -m…, -f…, -W…, -g…, -D… or -U…, without paths, \
     plugins or linker options (the language sets -std)";

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
}
