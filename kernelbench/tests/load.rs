//! What becomes of a task folder, whole or broken?

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IteratorRandom};
use std::{collections::BTreeSet, fs, path::Path, path::PathBuf};
use warpsmith_kernelbench::{ArgumentKind, Dtype, Fill, Number, Parameter, Precision, TimedCases, Transfer, load};

const GOOD: &str = r#"schema = 1
name = "double"
summary = "y = 2 x"
language = "c++17"
entry = "twice"
reference = "reference.cpp"
flags = ["-O2", "-ffast-math"]
[[argument]]
name = "y"
dtype = "f32"
size = "n * 2"
transfer = "out"
[[argument]]
name = "x"
dtype = "f32"
size = "n * 2"
transfer = "in"
fill = { normal = { mean = 0, std = 1, minus_infinity = 0.1 } }
[[argument]]
name = "n"
dtype = "i32"
[[argument]]
name = "scale"
dtype = "f64"
[tolerance]
atol = 0
rtol = 1e-5
[timing]
cases = "small"
[[case]]
name = "small"
n = 3
scale = 2
[[case]]
name = "big"
n = 3000
scale = 2.5
[[final_case]]
name = "one"
n = 1
scale = 2
[tuning]
TILE = [64, 128]
"#;

/// A task folder with this task file and a reference.
fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("task.toml"), text).unwrap();
    fs::write(folder.path().join("reference.cpp"), "extern \"C\" void twice() {}").unwrap();
    folder
}

/// The error of the good task file after one replacement, without the folder's name.
fn error_after(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old}");
    let folder = folder(&GOOD.replacen(old, new, 1));
    let error = load::task(folder.path()).expect_err(new);
    error.to_string().replace(&format!("{}/", folder.path().display()), "")
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)
}

/// The good task in CUDA, with a binding and a folder of headers; and what is changed in its folder.
fn bound(change: impl FnOnce(&Path)) -> Result<warpsmith_kernelbench::Task, String> {
    let own = "reference = \"reference.cpp\"\nbinding = \"binding.cu\"\ninclude = \"include\"";
    let text = GOOD.replace("c++17", "cuda").replace("\"-ffast-math\"", "\"-std=c++20\"");
    let folder = folder(&text.replace("reference = \"reference.cpp\"", own));
    let at = folder.path();
    fs::create_dir_all(at.join("include/a/b")).unwrap();
    fs::write(at.join("include/a/b/c.cuh"), "// c").unwrap();
    fs::write(at.join("include/d.h"), "// d").unwrap();
    fs::write(at.join("reference.cpp"), "struct Offers {};").unwrap();
    fs::write(at.join("binding.cu"), "extern \"C\" void twice() {}").unwrap();
    change(at);
    load::task(at).map_err(|error| error.to_string().replace(&format!("{}/", at.display()), ""))
}

#[test]
fn a_binding_and_headers_are_in_the_task_and_the_reference_need_not_name_the_entry() {
    let task = bound(|_| {}).unwrap();
    let context = task.context().unwrap();
    assert_eq!(context.binding.as_deref(), Some("extern \"C\" void twice() {}"));
    let headers: Vec<_> = context.include.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    assert_eq!(headers, [("a/b/c.cuh", "// c"), ("d.h", "// d")]);
    let again: warpsmith_kernelbench::Task = serde_json::from_str(&serde_json::to_string(&task).unwrap()).unwrap();
    assert_eq!(again, task);
}

#[test]
fn headers_that_lead_out_or_are_no_text_are_refused() {
    let error = |change: fn(&Path)| bound(change).unwrap_err();
    let linked = error(|at| std::os::unix::fs::symlink("/etc/passwd", at.join("include/x.h")).unwrap());
    assert!(linked.contains("task.toml:8:") && linked.contains("x.h is a link"), "{linked}");
    let folder = error(|at| {
        fs::remove_dir_all(at.join("include")).unwrap();
        std::os::unix::fs::symlink("/usr/include", at.join("include")).unwrap();
    });
    assert!(folder.contains("leads out of the task's folder"), "{folder}");
    assert!(error(|at| fs::write(at.join("include/x.h"), [0xff]).unwrap()).contains("x.h: it is not UTF-8"));
    assert!(error(|at| fs::write(at.join("include/a b.h"), "").unwrap()).contains("is no header's name"));
    assert!(error(|at| fs::write(at.join("binding.cu"), "void thrice();").unwrap()).contains("`twice`"));
    let cpp = error_after("language = \"c++17\"", "language = \"c++17\"\nbinding = \"reference.cpp\"");
    assert!(cpp.contains("only a task in \"cuda\" can have a binding"), "{cpp}");
}

#[test]
fn a_task_file_becomes_a_task() {
    let folder = folder(GOOD);
    let task = load::task(folder.path()).unwrap();
    let context = task.context().unwrap();
    assert_eq!((task.name.as_str(), context.entry.as_str()), ("double", "twice"));
    assert_eq!(context.flags, ["-O2", "-ffast-math"]);
    assert_eq!(context.reference, "extern \"C\" void twice() {}");
    assert_eq!(context.tuning.grid["TILE"], [Parameter::Number(64), Parameter::Number(128)]);
    assert_eq!(context.arguments[2].kind, ArgumentKind::Scalar);
    let ArgumentKind::Array { transfer, fill, .. } = &context.arguments[1].kind else { panic!("x is an array") };
    assert_eq!(*transfer, Transfer::In);
    assert_eq!(*fill, Fill::Normal { mean: 0.0, std: 1.0, minus_infinity: 0.1 });
    assert_eq!(task.cases[1].scalars["n"], Number::Integer(3000));
    assert_eq!(task.cases[0].scalars["scale"], Number::Float(2.0));
    assert_eq!((task.final_cases[0].name.as_str(), task.timed), ("one", TimedCases::Case("small".into())));
    assert!((task.tolerance.share - 1.0).abs() < f64::EPSILON);
    assert_eq!(load::task(&folder.path().join("task.toml")).unwrap().name, "double");
}

#[test]
fn candidates_of_a_problem_in_two_precisions_are_not_of_one_interface() {
    let task = load::task(&example("problems/level1/2_Matmul.py")).unwrap();
    let half = task.clone().in_precision(Precision::Bf16);
    assert!(half.has_interface_of(&half) && !half.has_interface_of(&task));
    assert!((half.tolerance.atol, half.tolerance.rtol) == (1e-2, 1e-2) && task.tolerance.atol < 2e-4);
    let kernel = load::task(&example("silu_and_mul")).unwrap();
    assert_eq!(kernel.clone().in_precision(Precision::Bf16), kernel, "a kernel says itself what it computes in");
}

#[test]
fn a_tolerance_above_a_hundredth_carries_its_reason() {
    let wide = GOOD.replace("rtol = 1e-5", "rtol = 0.02");
    let said = load::task(folder(&wide).path()).unwrap_err().to_string();
    assert!(said.contains("task.toml:27:8") && said.contains("a tolerance above 0.01 needs its reason"), "{said}");
    let empty = wide.replace("rtol = 0.02", "rtol = 0.02\nwhy = \" \"");
    assert!(load::task(folder(&empty).path()).is_err());
    let told = wide.replace("rtol = 0.02", "rtol = 0.02\nwhy = \" sums of bytes \"");
    let task = load::task(folder(&told).path()).unwrap();
    assert!(task.tolerance.rtol > 0.015 && task.tolerance_why == "sums of bytes");
    let not_needed = GOOD.replace("rtol = 1e-5", "rtol = 0.01");
    assert_eq!(load::task(folder(&not_needed).path()).unwrap().tolerance_why, "");
}

#[test]
fn a_file_beside_a_problem_states_its_tolerance_in_every_precision() {
    let folder = tempfile::tempdir().unwrap();
    let text = "class Model(): pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n";
    let (problem, beside) = (folder.path().join("1_One.py"), folder.path().join("1_One.toml"));
    fs::write(&problem, text).unwrap();
    let rtol = |precision| load::task(&problem).map(|task| task.in_precision(precision).tolerance.rtol);
    assert!(rtol(Precision::Fp32).unwrap() < 2e-4 && rtol(Precision::Bf16).unwrap() > 9e-3);
    fs::write(&beside, "[tolerance]\natol = 0.002\nrtol = 0.003\n").unwrap();
    for precision in [Precision::Fp32, Precision::Bf16] {
        assert!((rtol(precision).unwrap() - 0.003).abs() < f64::EPSILON, "{precision:?}");
    }
    for (text, what) in [
        ("[tolerance]\natol = 0.002\nrtol = 0.03\n", "1_One.toml:3:8"),
        ("[tolerance]\natol = 0\nrtol = 0\nshare = 0.9\n", "every element must be right"),
        ("[tolerances]\n", "unknown field `tolerances`"),
        ("name = \"x\"\n", "a file of its name states its tolerance, and holds nothing else"),
    ] {
        fs::write(&beside, text).unwrap();
        let said = load::task(&problem).unwrap_err().to_string();
        assert!(said.contains(what), "{said}");
    }
}

/// Hawkeye, Table 17: 0.01 in bfloat16, and in eight bits 0.1 for the three attentions alone.
#[test]
fn hawkeyes_workloads_have_the_tolerances_of_its_table() {
    for (folder, attention) in [("hawkeye", 0.01), ("hawkeye-fp8", 0.1)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(folder);
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let tasks: Vec<_> = files.filter(|path| path.extension().is_some_and(|ending| ending == "py")).collect();
        assert!(tasks.len() >= 6);
        for path in tasks {
            let task = load::task(&path).unwrap().in_precision(Precision::Bf16);
            let expected = if task.name.contains("Attention") { attention } else { 0.01 };
            let off = |bound: f64| (bound - expected).abs();
            assert!(off(task.tolerance.atol).max(off(task.tolerance.rtol)) < f64::EPSILON, "{}", task.name);
            assert_eq!(task.tolerance_why.is_empty(), expected < 0.05, "{}", task.name);
        }
    }
}

#[test]
fn the_examples_are_tasks() {
    for name in ["silu_and_mul", "fused_add_rmsnorm", "merge_attn_states"] {
        let task = load::task(&example(name)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((task.name.as_str(), &task.timed), (name, &TimedCases::All));
        let context = task.context().unwrap();
        assert_eq!(context.arguments.iter().any(|a| a.dtype == Dtype::Bf16), name == "fused_add_rmsnorm");
        assert!(task.cases.len() == 4 && task.final_cases.len() == 3);
    }
}

#[test]
fn an_error_shows_its_line_and_what_to_do() {
    let error = error_after("size = \"n * 2\"\ntransfer = \"in\"", "size = \"m * 2\"\ntransfer = \"in\"");
    let expected = "\
task.toml:16:8: `m` is no integer scalar
   |
16 | size = \"m * 2\"
   |        ^^^^^^^
   = expected an expression of the integer scalars: n";
    assert_eq!(error, expected);
}

#[test]
fn every_slip_is_named_where_it_stands() {
    let slips = [
        ("schema = 1", "schema = 2", "task.toml:1:10: this version"),
        ("schema = 1\n", "", "missing field `schema`"),
        ("schema = 1", "schema = 1\ncolour = 3", "task.toml:2:1: unknown field `colour`"),
        ("\"c++17\"", "\"metal\"", "task.toml:4:12: unknown variant `metal`"),
        ("\"c++17\"", "\"cuda\"", "task.toml:7:17: this flag is not allowed"),
        ("\"c++17\"", "\"python\"", "task.toml:4:12: a task folder cannot be in Python"),
        ("\"c++17\"", "\"c++17\"\nbackend = \"cuda\"", "task.toml:5:11: this backend does not run this language"),
        ("\"double\"", "\"../double\"", "task.toml:2:8: this cannot be a task's name"),
        ("\"y = 2 x\"", "\" \"", "task.toml:3:11: the summary is empty"),
        ("\"twice\"", "\"tw ice\"", "task.toml:5:9: this cannot name the entry point"),
        ("\"twice\"", "\"thrice\"", "task.toml:6:13: this file does not mention the entry point"),
        ("\"-O2\"", "\"-fplugin=a.so\"", "task.toml:7:10: this flag is not allowed"),
        ("\"-O2\"", "\"-o/tmp/x\"", "task.toml:7:10: this flag is not allowed"),
        ("name = \"x\"", "name = \"y\"", "task.toml:14:8: an earlier argument has this name"),
        ("name = \"x\"", "name = \"int\"", "task.toml:14:8: `int` is a word of C"),
        ("name = \"x\"", "name = \"name\"", "task.toml:14:8: an argument cannot be called `name`"),
        ("dtype = \"f32\"", "dtype = \"f8\"", "task.toml:10:9: unknown variant `f8`"),
        ("size = \"n * 2\"", "size = \"n * scale\"", "task.toml:11:8: `scale` is no integer scalar"),
        ("size = \"n * 2\"", "size = \"n * (2\"", "task.toml:11:8: this is no size in case small: expected `)`"),
        ("size = \"n * 2\"", "size = \"n - 3\"", "task.toml:11:8: this is no size in case small: it comes out as 0"),
        ("size = \"n * 2\"", "size = \"n - 4\"", "task.toml:11:8: this is no size in case small: comes out as -1"),
        (
            "size = \"n * 2\"",
            "size = \"n * 9223372036854775807\"",
            "task.toml:11:8: this is no size in case small: overflows",
        ),
        ("size = \"n * 2\"", "size = \"n * 923372036854775807\"", "task.toml:11:8: case small is too large"),
        ("transfer = \"out\"", "transfer = \"in\"\nfill = \"ones\"", "task.toml:1:1: this task has no output"),
        ("transfer = \"out\"\n", "", "task.toml:9:8: this array has no transfer"),
        ("transfer = \"out\"", "transfer = \"in-out\"", "task.toml:9:8: nothing says what this array holds"),
        ("transfer = \"out\"", "transfer = \"out\"\nfill = \"ones\"", "task.toml:13:8: an output holds nothing"),
        ("dtype = \"i32\"", "dtype = \"i32\"\nfill = \"ones\"", "task.toml:22:8: a scalar has no fill"),
        ("std = 1,", "std = -1,", "task.toml:18:8: an array cannot be filled like this"),
        ("minus_infinity = 0.1", "minus_infinty = 0.1", "task.toml:18:40: unexpected keys in table: minus_infinty"),
        ("atol = 0", "atol = nan", "task.toml:26:8: this cannot bound a difference"),
        ("atol = 0", "atol = 0\nshare = 0", "task.toml:27:9: this is no share"),
        ("atol = 0", "atol = 0\nshare = 1.5", "task.toml:27:9: this is no share"),
        ("cases = \"small\"", "cases = \"tiny\"", "task.toml:29:9: no case has this name"),
        ("cases = \"small\"", "cases = \"one\"", "task.toml:29:9: no case has this name"),
        ("n = 3\n", "", "task.toml:31:8: this case gives no value for `n`"),
        ("n = 3\n", "n = 3.5\n", "task.toml:32:5: `n` cannot have this value"),
        ("n = 3\n", "n = 3000000000\n", "task.toml:32:5: `n` cannot have this value"),
        ("n = 3\n", "n = 3\nm = 4\n", "task.toml:33:1: `m` is no scalar argument"),
        ("scale = 2\n", "scale = inf\n", "task.toml:33:9: `scale` cannot have this value"),
        ("name = \"one\"", "name = \"big\"", "task.toml:39:8: an earlier case has this name"),
        ("name = \"big\"", "name = \"all\"", "task.toml:35:8: this cannot be a case's name"),
        ("TILE = [64, 128]", "TILE = []", "task.toml:43:8: these are no values to choose from"),
        ("TILE = [64, 128]", "TI-LE = [64]", "task.toml:43:1: this cannot name a tuning parameter"),
    ];
    for (old, new, expected) in slips {
        let error = error_after(old, new);
        assert!(error.contains(expected) && error.lines().count() == 5, "{new}\n{error}");
    }
}

#[test]
fn a_task_without_cases_is_refused() {
    let (before, _) = GOOD.split_once("[[case]]").unwrap();
    let error = load::task(folder(before).path()).unwrap_err();
    assert!(error.what().contains("no case to run"), "{error}");
}

#[test]
fn a_reference_outside_the_folder_is_not_read() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), "twice").unwrap();
    for path in ["../reference.cpp", "/etc/passwd", outside.path().to_str().unwrap(), ""] {
        let error = error_after("reference.cpp", path);
        assert!(error.contains("must lie in the task's folder"), "{error}");
    }
    let folder = folder(GOOD);
    fs::remove_file(folder.path().join("reference.cpp")).unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("reference.cpp")).unwrap();
    let error = load::task(folder.path()).unwrap_err().to_string();
    assert!(error.contains("a link that leads out of the task's folder"), "{error}");
}

#[test]
fn a_reference_that_is_no_text_is_refused() {
    assert!(error_after("reference.cpp", "missing.cpp").contains("task.toml:6:13: this file cannot be opened"));
    let folder = folder(GOOD);
    let reference = folder.path().join("reference.cpp");
    let error = || load::task(folder.path()).unwrap_err().to_string();
    fs::write(&reference, b"twice \xff").unwrap();
    assert!(error().contains("not UTF-8: byte 6"), "{}", error());
    fs::write(&reference, "twice ".repeat(1 << 18)).unwrap();
    assert!(error().contains("larger than 1024 KiB"), "{}", error());
    fs::remove_file(&reference).unwrap();
    fs::create_dir(&reference).unwrap();
    assert!(error().contains("no regular file"), "{}", error());
}

#[test]
fn a_path_that_is_no_task_says_what_a_task_is() {
    let error = |path: &str| load::task(Path::new(path)).unwrap_err().to_string();
    assert!(error("level1/19_ReLU.py").contains("cannot be read"));
    assert!(error("/no/such/folder").contains("no such file or folder"));
    assert!(error(tempfile::tempdir().unwrap().path().to_str().unwrap()).contains("no task.toml"));
    assert!(error(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs")).contains("this is no task"));
    assert!(load::task(Path::new("/dev/zero")).is_err());
}

#[test]
fn the_recorded_run_lies_beside_the_task_file() {
    let folder = folder(GOOD);
    assert_eq!(load::recorded_run(folder.path()), None);
    let recorded = folder.path().join("recorded");
    fs::create_dir(&recorded).unwrap();
    assert_eq!(load::recorded_run(folder.path()), Some(recorded.clone()));
    assert_eq!(load::recorded_run(&folder.path().join("task.toml")), Some(recorded));
}

#[test]
fn no_terminal_escape_of_a_task_file_reaches_the_terminal() {
    let error = error_after("name = \"x\"", "name = \"x\u{9b}31m\u{202e}\"");
    assert!(error.contains("cannot name an argument") && !error.contains(['\u{9b}', '\u{202e}']), "{error}");
}

#[test]
fn whatever_a_task_file_holds_it_is_a_task_or_an_error_and_never_a_panic() {
    let mut rng = StdRng::seed_from_u64(7);
    let folder = folder(GOOD);
    let path = folder.path().join("task.toml");
    let mut ways = BTreeSet::new();
    for _ in 0..3000 {
        let mut text = GOOD.to_owned();
        for _ in 0..rng.random_range(1..4) {
            mutate(&mut text, &mut rng);
        }
        fs::write(&path, &text).unwrap();
        match load::task(folder.path()) {
            Ok(_) => _ = ways.insert("a task".to_owned()),
            Err(error) => {
                assert!(error.to_string().lines().count() == 5, "{error}\n---\n{text}");
                ways.insert(error.what().chars().take(14).collect());
            }
        }
    }
    assert!(ways.len() > 40 && ways.contains("a task"), "the mutations try too little: {ways:#?}");
}

/// Puts a line of the text in the place of another.
fn replace_a_line(text: &mut String, rng: &mut StdRng) {
    let mut lines: Vec<&str> = text.lines().collect();
    let (from, to) = (rng.random_range(0..lines.len()), rng.random_range(0..lines.len()));
    lines[to] = lines[from];
    *text = lines.join("\n");
}

/// Takes out, doubles or replaces a stretch of the text.
fn mutate(text: &mut String, rng: &mut StdRng) {
    const ODD: &str = "- 0 1e999 nan \" ' [ ] { } = \n é\u{202e} 9223372036854775808 # \0";
    if rng.random() {
        return replace_a_line(text, rng);
    }
    let mut chars: Vec<char> = text.chars().collect();
    let start = rng.random_range(0..=chars.len());
    let end = (start + rng.random_range(0..12)).min(chars.len());
    let odd = ODD.split(' ').choose(rng).unwrap().chars();
    let stretch: Vec<char> = match rng.random_range(0..4) {
        0 => chars.drain(start..end).collect(),
        1 => chars.splice(start..start, odd).collect(),
        2 => chars.splice(start..end, odd).collect(),
        _ => vec![],
    };
    let at = rng.random_range(0..=chars.len());
    chars.splice(at..at, stretch);
    *text = chars.into_iter().collect();
}

/// The good task with a reference of this text.
fn with_reference(text: &str) -> Result<warpsmith_kernelbench::Task, String> {
    let folder = folder(GOOD);
    fs::write(folder.path().join("reference.cpp"), text).unwrap();
    load::task(folder.path()).map_err(|error| error.to_string())
}

#[test]
fn a_reference_that_leaves_parameters_open_is_bound_to_their_first_values_and_keeps_what_was_written() {
    let written =
        "// region: macros\n// region: device\n// region: host\nextern \"C\" void twice() { int t = {{TILE}}; }\n";
    let task = with_reference(written).unwrap();
    let context = task.context().unwrap();
    assert_eq!(context.initial.as_deref(), Some(written));
    assert_eq!(context.reference, written.replace("{{TILE}}", "64"));
    let initial = task.initial_context().unwrap();
    assert_eq!(initial.open(&context.tuning), ["TILE"]);
    assert_eq!(initial.region("host"), Some("extern \"C\" void twice() { int t = {{TILE}}; }\n"));
    for (old, new, why) in [
        ("{{TILE}}", "{{TILES}} + {{TILE}}", "`{{TILES}}` is no tuning parameter of the task; it has TILE"),
        ("// region: device\n", "", "there is no region device"),
    ] {
        let said = with_reference(&written.replacen(old, new, 1)).unwrap_err();
        assert!(said.contains(why) && said.contains("task.toml:6:"), "{said}");
    }
    let plain = with_reference("extern \"C\" void twice() {}").unwrap();
    assert!(plain.initial_context().unwrap_err().contains("begin each of macros, device and host with a line such as"));
}

#[test]
fn the_matrix_products_have_regions_and_a_kernel_of_at_most_six_lines() {
    let cuda = ["cuda/matmul_fp32", "cuda/matmul_fp16", "cuda/matmul_fp8"];
    let others = ["matmul", "hip/matmul_fp32", "hip/matmul_fp16", "hlsl/matmul_fp32", "hlsl/matmul_fp16"];
    for name in cuda.into_iter().chain(others) {
        let task = load::task(&example(name)).unwrap();
        let initial = task.initial_context().unwrap();
        let small = task.sanitizer_cases.iter().map(|case| case.name.as_str());
        assert!(small.eq(["512"].into_iter().filter(|_| cuda.contains(&name))), "{name}");
        // What a shader is bound to stands before it.
        let kernel = initial.region("device").unwrap().lines().skip_while(|line| !line.contains("void "));
        assert!(kernel.count() - 2 <= 6, "{name}");
        assert_eq!(initial.open(&task.context().unwrap().tuning), ["BLOCK_X", "BLOCK_Y"], "{name}");
        assert!(task.reference().contains("16"), "{name}");
    }
}

#[test]
fn a_list_of_values_makes_a_case_for_each_and_valid_args_leaves_out_what_it_does_not_hold_for() {
    let many = GOOD.replace("n = 3000\nscale = 2.5", "n = \"[2**i for i in 3..=6]\"\nscale = [1, 2.5]");
    let names = |text: &str| {
        let cases = load::task(folder(text).path()).map_err(|error| error.to_string())?.cases;
        Ok::<_, String>(cases.into_iter().map(|case| case.name).collect::<Vec<_>>())
    };
    let all =
        ["small", "big-8-1", "big-8-2.5", "big-16-1", "big-16-2.5", "big-32-1", "big-32-2.5", "big-64-1", "big-64-2.5"];
    assert_eq!(names(&many).unwrap(), all);
    let valid = many.replacen("[[argument]]", "valid_args = \"n % 16 == 0 or n < 4\"\n[[argument]]", 1);
    assert_eq!(names(&valid).unwrap(), [&all[..1], &all[3..]].concat());
    for (old, new, why) in [
        ("2**i for i in 3..=6", "2**i for i in 3..=90", "it counts beyond 64"),
        ("2**i for i in 3..=6", "2**j for i in 3..=6", "undefined"),
        ("2**i for i in 3..=6", "2**i for i in 3..=40", "`n` cannot have this value"),
        ("[2**i for i in 3..=6]", "many", "it is no list in words"),
        ("scale = [1, 2.5]", "scale = []", "this list holds 0"),
        ("n % 16 == 0 or n < 4", "n % 16 == 0", "this case breaks the task's valid_args"),
        ("n % 16 == 0 or n < 4", "n < 4", "valid_args holds for none of these"),
        ("n % 16 == 0 or n < 4", "n < 4 or m < 4", "valid_args cannot be evaluated: it names `m`"),
        ("n % 16 == 0 or n < 4", "scale < 4", "valid_args cannot be evaluated: it names `scale`"),
        ("n % 16 == 0 or n < 4", "n <", "valid_args cannot be evaluated: "),
        ("n % 16 == 0 or n < 4", "n / 0 == 1", "this cannot be evaluated for the case small"),
        ("2**i for i in 3..=6", "[[0] * 100000000] for i in 0..=0", "`[` stands in it"),
        ("2**i for i in 3..=6", "i / 2 for i in 3..=3", "at i = 3 it comes to no whole number"),
        ("3..=6", "-9223372036854775808..=9223372036854775807", "it counts beyond 64"),
        ("3..=6", "6..=3", "this list holds 0"),
    ] {
        assert!(valid.contains(old), "{old}");
        let told = names(&valid.replacen(old, new, 1)).unwrap_err();
        assert!(told.contains(why) && told.contains("task.toml:"), "{new}: {told}");
    }
}

const BASELINE: &str = r#"[[baseline]]
name = "quick"
source = "reference.cpp"
link = ["openblas"]
environment = { OPENBLAS_NUM_THREADS = "1" }
forbid = { symbols = ["cblas_*"] }
[oracle]
baseline = "quick"
cases = ["big", "one"]
[tuning]
"#;

#[test]
fn baselines_and_an_oracle_are_in_the_task_and_each_slip_is_told() {
    let whole = GOOD.replacen("[tuning]\n", BASELINE, 1).replacen("[timing]", "[timing]\nagainst = \"quick\"", 1);
    let task = load::task(folder(&whole).path()).unwrap();
    let (all, oracle) = (task.baselines(), task.baselines().oracle().unwrap());
    assert_eq!((task.against().as_deref(), oracle.name.as_str()), (Some("quick"), "quick"));
    assert!(all.is_large("big") && all.is_large("one") && !all.is_large("small"));
    let forbidden = &all.forbidden()[0];
    assert_eq!((&forbidden.link[0], &forbidden.symbols[0]), (&"openblas".to_owned(), &"cblas_*".to_owned()));
    let in_cuda = whole.replace("\"c++17\"", "\"cuda\"").replace("flags = [\"-O2\", \"-ffast-math\"]\n", "");
    let in_cuda = load::task(folder(&in_cuda.replace("\"openblas\"", "\"cublas\"")).path()).unwrap();
    let forbidden = in_cuda.baselines().forbidden();
    assert!(forbidden.iter().any(|one| one.include.contains(&"cublas_v2.h".to_owned())), "{forbidden:?}");
    for (old, new, why) in [
        ("against = \"quick\"", "against = \"fast\"", "there is no baseline of this name"),
        ("name = \"quick\"", "name = \"reference\"", "this cannot be a baseline's name"),
        ("\"openblas\"", "\"-Wl,x\"", "this is no library's name"),
        ("OPENBLAS_NUM_THREADS", "LD_PRELOAD", "a baseline cannot be given this variable"),
        ("\"big\", \"one\"", "\"big\", \"two\"", "there is no case of this name"),
        ("\"big\", \"one\"", "\"big\", \"small\"", "this oracle would answer for every case"),
        ("source = \"reference.cpp\"\nlink", "source = \"../x.cpp\"\nlink", "this file must lie in the task's folder"),
        ("symbols =", "functions =", "unknown field"),
    ] {
        assert!(whole.contains(old), "{old}");
        let changed = whole.replacen(old, new, 1).replace("flags = [\"-O2\", \"-ffast-math\"]\n", "");
        let error = load::task(folder(&changed).path()).expect_err(new).to_string();
        assert!(error.contains(why), "{new}: {error}");
    }
}
