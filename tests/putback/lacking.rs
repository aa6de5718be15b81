//! Does whoever lacks a package or a whole record hear it in a sentence?

use super::*;

#[test]
fn a_damaged_record_of_one_task_among_many_keeps_no_other_from_going_back() {
    let story = Story::of_two();
    let log = Path::new(&story.run()).join("tasks/merge_attn_states_fp16/events.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replacen('{', "", 2)).unwrap();
    let (told, out) = story.export("plugin", &["--op", "silu_and_mul"]);
    let told = told.ended(0);
    assert!(
        told.out.contains("note       merge_attn_states_fp16: its record cannot be read, and it is left out"),
        "{told:?}"
    );
    assert!(out.join("warpsmith_sglang_silu_and_mul").is_dir());
    let (told, _) = story.export("library", &["--op", "merge_attn_states"]);
    assert!(told.clone().ended(2).err.contains("there is no kernel of it"), "{told:?}");
}

#[test]
fn a_plug_in_says_what_this_pythons_packages_lack_to_install_it() {
    let story = Story::of(FASTER);
    let (_, out) = story.export("plugin", &[]);
    let lib = story.folder.path().join("lib");
    let setup = |version: &str| {
        write(&lib.join("setuptools.py"), &format!("__version__ = '{version}'\nsetup = lambda: print('set up')\n"));
        python(&lib, &["-S", &out.join("setup.py").display().to_string()], &[])
    };
    let old = setup("59.6.0");
    assert!(
        old.clone().ended(1).err.contains("59.6.0") && old.err.contains("does not read pyproject.toml: install 61"),
        "{old:?}"
    );
    let without = setup("65.5.0");
    assert!(without.clone().ended(1).err.contains("the package wheel, which is not installed"), "{without:?}");
    write(&lib.join("wheel.py"), "");
    assert!(setup("65.5.0").ended(0).out.contains("set up") && setup("80.9.0").ended(0).out.contains("set up"));
}
