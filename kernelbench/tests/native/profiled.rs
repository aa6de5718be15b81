//! What a profile of a candidate says, and what one that knows of it can do.

use super::{RIGHT, alone, cache, check, children, kernel, on_this_thread, program, suite, task, workshop_on};
use warpsmith_kernelbench::{Workshop, cpu};

/// Whether the rung of simulated caches can be had here.
fn has_valgrind() -> bool {
    std::process::Command::new("valgrind").arg("--version").output().is_ok()
}

#[test]
fn a_verified_candidate_is_profiled_as_deep_as_this_machine_allows() {
    let _alone = alone();
    let (workshop, task) = (workshop_on(cpu::machine(Some(&cache()))), task());
    let suite = suite(&task);
    let profile = on_this_thread(async {
        let verified = check(&workshop, &task, &kernel(RIGHT)).await.unwrap().unwrap();
        workshop.profile(&task, &verified, &suite).await.unwrap()
    });
    assert_eq!(profile.case, "large");
    let counted = profile.readings.iter().filter(|r| r.value.is_some()).count();
    assert!(counted > 0 || !profile.notes.is_empty(), "{profile:#?}");
    assert!(!has_valgrind() || profile.rung != metrics::Rung::TimingOnly, "valgrind is here: {profile:#?}");
    assert_eq!(children(), Vec::<String>::new());
}

/// It knows a profiler's process by its environment, and there starts a process, limits its parent, or kills it.
#[test]
fn a_candidate_that_misbehaves_under_a_profiler_is_confined_there_too() {
    let _alone = alone();
    let limits = || std::fs::read_to_string("/proc/self/limits").unwrap();
    let before = limits();
    let headers = "#include <stdlib.h>\n#include <signal.h>\n#include <unistd.h>\n#include <sys/resource.h>\n#include <sys/wait.h>";
    let limit = "rlimit r = {12345, 12345}; prlimit(getppid(), RLIMIT_MSGQUEUE, &r, 0);";
    for does in ["if (fork() == 0) { setsid(); sleep(20); _exit(0); }", limit] {
        let source = program(headers, &format!("if (getenv(\"LC_ALL\")) {{ {does} }} {RIGHT}"));
        let (workshop, task) = (workshop_on(cpu::machine(Some(&cache()))), task());
        let suite = suite(&task);
        let profile = on_this_thread(async {
            let verified = check(&workshop, &task, &source).await.unwrap().unwrap();
            workshop.profile(&task, &verified, &suite).await.unwrap()
        });
        assert_eq!(children(), Vec::<String>::new(), "{does}: {profile:#?}");
        assert_eq!(limits(), before, "{does}");
        let ended = profile.notes.iter().any(|note| note.contains("no business to do"));
        assert!(ended || !has_valgrind(), "{does}: {profile:#?}");
    }
}
