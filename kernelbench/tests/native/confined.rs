//! What confines a candidate and its compiler.

use super::*;

#[test]
fn what_confines_a_kernel_here_is_what_its_process_found() {
    let _alone = alone();
    let layers = workshop().confinement().unwrap();
    let in_force = |name: &str| layers.iter().find(|l| l.name == name).is_some_and(|l| l.in_force);
    assert!(in_force("resource limits") && in_force("system call filter"), "{layers:#?}");
    assert_eq!(children(), Vec::<String>::new());
}

#[test]
fn the_compiler_reads_nothing_but_the_candidate_and_the_system() {
    if workshop().confinement().unwrap().iter().any(|layer| layer.name == "landlock" && !layer.in_force) {
        eprintln!("this kernel has no landlock: nothing to see");
        return;
    }
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "int secret;").unwrap();
    let include = format!("#include \"{}\"", secret.path().display());
    let failed = failure(&program(&include, RIGHT));
    assert!(matches!(&failed, Failure::Build { log } if log.contains("Permission denied")), "{failed:?}");
}

#[test]
fn a_library_that_asks_where_memory_lies_goes_on_without_an_answer() {
    let _alone = alone();
    let asks = format!("if (syscall(SYS_mbind, 0, 0, 0, 0, 0, 0) != -1 || errno != ENOSYS) return;\n{RIGHT}");
    let passed = evaluate(&program("#include <cerrno>\n#include <sys/syscall.h>\n#include <unistd.h>", &asks));
    assert!(matches!(passed, Ok(Ok(_))), "{passed:?}");
}
