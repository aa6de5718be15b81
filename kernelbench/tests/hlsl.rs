//! What becomes of candidates in HLSL, by way of a Vulkan driver on this processor.
use std::{fs, path::PathBuf, sync::OnceLock};
use warpsmith_kernelbench::{
    Candidate, Evaluation, Failure, Outcome, Suite, Task, TimingPlan, Workshop, cpu, load,
    native::{Native, NativeOptions},
};

const PLAN: TimingPlan = TimingPlan::median_of(1, 3);

/// `y = x * by + y`, of a length that no thread group divides, in single or half precision.
const TASK: &str = r#"
schema = 1
name = "axpy"
summary = "y = x * by + y"
language = "hlsl"
entry = "axpy"
reference = "reference.hlsl"
returns = "status"
argument = [
    { name = "y", dtype = "DTYPE", size = "n", transfer = "in-out", fill = "ones" },
    { name = "x", dtype = "DTYPE", size = "n", transfer = "in", fill = { uniform = { low = -1, high = 1 } } },
    { name = "by", dtype = "f32" },
    { name = "n", dtype = "i64" },
]
tolerance = { atol = 1e-3, rtol = 1e-3 }
timing = { cases = "long" }
case = [{ name = "long", n = 4099, by = 1.5 }, { name = "short", n = 3, by = -2.0 }]
"#;

const REFERENCE: &str = r#"// region: macros
#define THREADS 64
// region: device
[[vk::binding(0)]] RWStructuredBuffer<TYPE> y;
[[vk::binding(1)]] StructuredBuffer<TYPE> x;
struct Scalars { float by; int n; };
[[vk::push_constant]] ConstantBuffer<Scalars> scalars;
[numthreads(THREADS, 1, 1)]
void all(uint3 id : SV_DispatchThreadID) {
    int i = (int)id.x;
    if (i < scalars.n) y[i] = (TYPE)((float)x[i] * scalars.by + (float)y[i]);
}
// region: host
extern "C" int axpy(ws_buffer y, ws_buffer x, float by, int64_t n, ws_device *device) {
    ws_dispatch(device, "all", {(n + THREADS - 1) / THREADS}, {y, x}, {by, n});
    return 0;
}
"#;

fn task_of(dtype: &str) -> Result<Task, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("reference.hlsl"), reference(dtype)).unwrap();
    fs::write(folder.path().join("task.toml"), TASK.replace("DTYPE", dtype)).unwrap();
    load::task(folder.path()).map_err(|why| why.to_string())
}

fn reference(dtype: &str) -> String {
    REFERENCE.replace("TYPE", if dtype == "f16" { "half" } else { "float" })
}

fn cache() -> PathBuf {
    static CACHE: OnceLock<tempfile::TempDir> = OnceLock::new();
    CACHE.get_or_init(|| tempfile::tempdir().unwrap()).path().to_owned()
}

fn workshop() -> Native {
    let program = env!("CARGO_BIN_EXE_warpsmith-kernel").into();
    Native::with_vulkan(NativeOptions::new(program, vec![], cache(), cpu::machine(None))).unwrap()
}

fn evaluated(dtype: &str, change: [&str; 2]) -> Outcome<f64> {
    let (workshop, task) = (workshop(), task_of(dtype).unwrap());
    let source = reference(dtype);
    assert!(source.contains(change[0]), "{}", change[0]);
    let candidate = Candidate::new(source.replace(change[0], change[1]));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let evaluation = async { workshop.evaluate(&task, &candidate, &Suite::of_task(&task), &PLAN).await };
    Ok(match runtime.block_on(evaluation)? {
        Evaluation::Passed(timed) => Ok(timed.speedup.ratio),
        Evaluation::Failed(failure) => Err(failure),
        other => panic!("it is timed: {other:?}"),
    })
}

const SAME: [&str; 2] = ["// region: host", "// region: host"];

#[test]
#[cfg_attr(not(has_vulkan), ignore = "needs glslangValidator and a Vulkan driver for this processor")]
fn a_kernel_is_compared_and_timed_in_single_and_in_half_precision() {
    assert!(workshop().machine().name.contains("llvmpipe"), "{}", workshop().machine().name);
    for dtype in ["f32", "f16"] {
        let ratio = evaluated(dtype, SAME).unwrap().unwrap();
        assert!((0.001..1000.0).contains(&ratio), "{dtype}: {ratio}");
    }
}

#[test]
#[cfg_attr(not(has_vulkan), ignore = "needs glslangValidator and a Vulkan driver for this processor")]
fn what_is_wrong_beyond_or_refused_is_told_as_everywhere() {
    let wrong = evaluated("f32", ["* scalars.by +", "* scalars.by + 0.01 +"]).unwrap().unwrap_err();
    assert!(matches!(wrong, Failure::Mismatch { .. }), "{wrong:?}");
    let beyond = evaluated("f32", ["if (i < scalars.n)", "if (i < scalars.n + 1)"]).unwrap().unwrap_err();
    assert!(matches!(beyond, Failure::OutOfBounds { .. }), "{beyond:?}");
    let misspelt = evaluated("f32", ["\"all\"", "\"some\""]).unwrap().unwrap_err();
    assert!(misspelt.to_string().contains("dispatch of some: the device region has no such shader"), "{misspelt}");
    let many = evaluated("f32", ["{(n + THREADS - 1) / THREADS}", "{n * 1000}"]).unwrap().unwrap_err();
    assert!(many.to_string().contains("thread groups, of 1 to"), "{many}");
    let unread = evaluated("f32", ["    return 0;", "    return *(int *)x;"]).unwrap().unwrap_err();
    assert!(matches!(unread, Failure::Crash { .. }), "{unread:?}");
}

#[test]
#[cfg_attr(not(has_vulkan), ignore = "needs glslangValidator and a Vulkan driver for this processor")]
fn a_compilers_message_names_the_region_and_its_line() {
    for (change, place) in
        [(["(float)x[i]", "(float)z[i]"], "device.hlsl:8:"), (["    return 0;", "    retur 0;"], "host.hlsl:3:")]
    {
        let Failure::Build { log } = evaluated("f32", change).unwrap().unwrap_err() else { panic!("{place}") };
        assert!(log.contains(place), "{log}");
    }
}

#[test]
#[cfg_attr(not(has_vulkan), ignore = "needs glslangValidator and a Vulkan driver for this processor")]
fn a_file_without_regions_or_shaders_is_not_what_was_asked_for() {
    for (change, why) in [
        (["// region: host", "//"], "has the regions macros, device and host"),
        (["[numthreads(THREADS, 1, 1)]", ""], "holds no shader"),
    ] {
        let failure = evaluated("f32", change).unwrap().unwrap_err();
        assert!(matches!(&failure, Failure::Interface { log } if log.contains(why)), "{failure:?}");
    }
}

#[test]
fn a_type_that_hlsl_has_not_is_refused_where_the_task_is_read() {
    let why = task_of("f64").unwrap_err();
    assert!(why.contains("an array in \"hlsl\" is of f32, f16 or i32"), "{why}");
}
