//! Is it the certified kernel that serves a call, by the guard in C++ and in the place of two calls?

use super::*;

#[test]
fn the_guard_in_cpp_decides_as_the_one_in_python_for_everything_that_it_must_see() {
    let story = Story::of(FASTER);
    let (_, out) = story.export("plugin", &[]);
    let script = format!("{}/tests/putback/guarded.py", env!("CARGO_MANIFEST_DIR"));
    // Built once for all runs of the test.
    let told = python(&out, &[&script], &[("WARPSMITH_SGLANG_CACHE", env!("CARGO_TARGET_TMPDIR"))]);
    let lacking = told.err.contains("No module named 'torch'") || told.out.contains("passed over");
    if lacking && std::env::var_os("WARPSMITH_GUARD").is_none() {
        let why = "passed over: the guard needs torch, its headers and a C++ compiler; WARPSMITH_GUARD=1 insists\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), why.as_bytes());
        return;
    }
    assert!(told.clone().ended(0).out.contains("as it says: guarded"), "{told:?}");
}

#[test]
fn a_chain_stands_in_for_two_calls_at_layers_where_they_were_seen_to_follow_one_another() {
    let story = Story::of_task(CHAIN, FASTER);
    let (told, _) = story.export("patch", &[]);
    assert!(told.ended(2).err.contains("only a plug-in can put it back"));
    let (told, out) = story.export("plugin", &[]);
    told.ended(0);
    let site = story.site_of(&out, "warpsmith_sglang_qknorm_rope");
    let kernel = includes(&site, "qknorm_rope_bf16/qknorm_rope.cuh", &PARTS);
    scripted("chained.py", &site, "served", &[]);
    scripted("chained.py", &site, "asked", &[]);
    scripted("chained.py", &site, "not followed", &[]);
    let part = site.join("sglang/kernels/jit/csrc").join(PARTS[1]);
    fs::write(&part, "// newer\n").unwrap();
    scripted("chained.py", &site, "header differs", &[]);
    fs::remove_file(&part).unwrap();
    scripted("chained.py", &site, "header differs", &[]);
    fs::copy(Path::new(STANDIN).join("sglang/kernels/jit/csrc").join(PARTS[1]), &part).unwrap();
    fs::write(&kernel, "#error none\n").unwrap();
    scripted("chained.py", &site, "not built", &[]);
}
