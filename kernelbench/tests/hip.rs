//! What becomes of candidates for AMD GPUs that are not here: they are compiled, and not run.
use metrics::Arch;
use std::{fs, path::PathBuf, sync::OnceLock};
use warpsmith_kernelbench::{
    Candidate, Clang, CodeObject, Compiled, CompiledOptions, Evaluation, Failure, Fault, Gfx, Outcome, Suite, Task,
    TimingPlan, Workshop, cuda, load,
};

const PLAN: TimingPlan = TimingPlan::median_of(1, 1);

/// `y = x + y`, in half precision.
const TASK: &str = r#"
schema = 1
name = "add"
summary = "y = x + y"
arch = "ARCH"
language = "hip"
entry = "add"
reference = "reference.hip"
argument = [
    { name = "y", dtype = "f16", size = "n", transfer = "in-out", fill = "ones" },
    { name = "x", dtype = "f16", size = "n", transfer = "in", fill = "ones" },
    { name = "n", dtype = "i32" },
]
tolerance = { atol = 1e-3, rtol = 1e-3 }
case = [{ name = "long", n = 4096 }]
"#;

const REFERENCE: &str = r#"
static __global__ void add_kernel(__half *y, const __half *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}
extern "C" void add(__half *y, const __half *x, int32_t n, hipStream_t stream) {
    add_kernel<<<(n + 255) / 256, 256, 0, stream>>>(y, x, n);
}
"#;

/// A kernel with these lines, and the entry that launches it.
fn kernel(lines: &str) -> String {
    REFERENCE.replace("    if (i < n) y[i] += x[i];", lines)
}

fn task_of(arch: &str, reference: &str) -> Result<Task, String> {
    task_with(&TASK.replace("ARCH", arch), reference)
}

fn task_with(text: &str, reference: &str) -> Result<Task, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("reference.hip"), reference).unwrap();
    fs::write(folder.path().join("task.toml"), text).unwrap();
    load::task(folder.path()).map_err(|why| why.to_string())
}

fn cache() -> PathBuf {
    static CACHE: OnceLock<tempfile::TempDir> = OnceLock::new();
    CACHE.get_or_init(|| tempfile::tempdir().unwrap()).path().to_owned()
}

fn workshop(arch: Gfx) -> Compiled {
    let program = env!("CARGO_BIN_EXE_warpsmith-kernel").into();
    let options = CompiledOptions { program, program_args: vec![], cache: cache(), build_deadline: None };
    Compiled::new(arch, options).unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn compiled(arch: Gfx, source: &str) -> Outcome<CodeObject> {
    let (workshop, task) = (workshop(arch), task_of(arch.name(), REFERENCE).unwrap());
    let suite = Suite::of_task(&task);
    Ok(match run(workshop.evaluate(&task, &Candidate::new(source), &suite, &PLAN))? {
        Evaluation::Compiled(code) => Ok(code),
        Evaluation::Failed(failure) => Err(failure),
        other => panic!("nothing was run: {other:?}"),
    })
}

#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn a_kernel_is_compiled_for_each_architecture_and_its_matrix_instructions_are_counted() {
    matrix_instructions_are_counted(Gfx::Gfx90a);
    matrix_instructions_are_counted(Gfx::Gfx942);
}

#[test]
#[cfg_attr(not(has_gfx950), ignore = "needs clang 20 or newer and lld, for gfx950")]
fn a_kernel_is_compiled_for_gfx950_as_well() {
    matrix_instructions_are_counted(Gfx::Gfx950);
}

fn matrix_instructions_are_counted(arch: Gfx) {
    let plain = kernel("if (i < n) y[i] += x[i];");
    let matrix = "
    typedef _Float16 four __attribute__((ext_vector_type(4)));
    typedef float sixteen __attribute__((ext_vector_type(16)));
    sixteen sum = {};
    const four *a = (const four *)x + i, *b = (const four *)y + i;
    sum = __builtin_amdgcn_mfma_f32_32x32x8f16(a[0], b[0], sum, 0, 0, 0);
    sum = __builtin_amdgcn_mfma_f32_32x32x8f16(a[64], b[64], sum, 0, 0, 0);
    for (int k = 0; k < 16; ++k) y[16 * i + k] = (__half)sum[k];";
    let code = compiled(arch, &plain).unwrap().unwrap();
    assert_eq!((code.arch, code.kernels.len(), code.kernels[0].mfma), (arch, 1, 0), "{code}");
    assert_eq!(code.kernels[0].source_name(), "add_kernel");
    assert!(code.kernels[0].vgprs > 0 && code.kernels[0].sgprs > 0, "{code}");
    let code = compiled(arch, &kernel(matrix)).unwrap().unwrap();
    assert_eq!(code.kernels[0].mfma, 2, "{code}");
    assert!(code.to_string().starts_with(&format!("compiled, not run, for {arch}: add_kernel with ")), "{code}");
    // What inline assembly leaves out, or says in a comment, the compiler did not write.
    let lines = "asm volatile(\".if 0\\n\\tv_mfma_f32_32x32x8_f16 a[0:15], v[2:3], v[4:5], a[0:15]\\n\\t.endif\"); y[i] = x[i];";
    let code = compiled(arch, &kernel(lines)).unwrap().unwrap();
    assert_eq!(code.kernels[0].mfma, 0, "{code}");
}

#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn a_candidate_with_odd_bytes_or_without_a_kernel_is_no_fault_of_the_machine() {
    let odd = kernel("asm volatile(\"; \\xff\"); if (i < n) y[i] += x[i];");
    assert_eq!(compiled(Gfx::Gfx90a, &odd).unwrap().unwrap().kernels.len(), 1);
    let none = "extern \"C\" void add(__half *, const __half *, int32_t, hipStream_t) {}";
    let failure = compiled(Gfx::Gfx90a, none).unwrap().unwrap_err();
    assert!(matches!(&failure, Failure::Interface { log } if log.contains("no kernel")), "{failure:?}");
}

#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn lds_scratch_and_spills_are_those_that_a_kernel_was_made_to_have() {
    let lines = "__shared__ float tile[300]; tile[threadIdx.x] = x[i]; __syncthreads(); y[i] = tile[n];";
    let code = compiled(Gfx::Gfx90a, &kernel(lines)).unwrap().unwrap();
    let kernel_of = |code: &CodeObject| code.kernels[0].clone();
    assert_eq!((kernel_of(&code).lds_bytes, kernel_of(&code).scratch_bytes), (1200, 0), "{code}");
    assert_eq!((kernel_of(&code).vgpr_spills, kernel_of(&code).sgpr_spills), (0, 0), "{code}");
    // Accumulation registers in use are told apart from the others.
    let code = compiled(Gfx::Gfx90a, &kernel("asm volatile(\"v_accvgpr_write_b32 a7, 1\" ::: \"a7\"); y[i] = x[i];"));
    assert_eq!(kernel_of(&code.unwrap().unwrap()).agprs, 8);
    // As many values that live at once as there are registers twice over.
    let lines = "float at[80]; for (int k = 0; k < 80; ++k) at[k] = x[i + k];
        for (int k = 0; k < 80; ++k) asm volatile(\"\" : \"+v\"(at[k]));
        for (int k = 0; k < 80; ++k) y[i + k] = at[k] * at[79 - k];";
    let bounded = "__attribute__((amdgpu_num_vgpr(16))) add_kernel";
    let code = compiled(Gfx::Gfx90a, &kernel(lines).replacen("add_kernel", bounded, 1)).unwrap().unwrap();
    let spilled = kernel_of(&code);
    assert!(spilled.vgpr_spills > 40 && spilled.scratch_bytes >= 4 * 40, "{code}");
}

#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn an_error_on_either_side_is_told_with_the_line_of_the_candidate() {
    let failure = |source: &str| compiled(Gfx::Gfx90a, source).unwrap().unwrap_err();
    let log = |source: &str| match failure(source) {
        Failure::Build { log } => log,
        other => panic!("it does not compile: {other:?}"),
    };
    let host = REFERENCE.replace("(n + 255) / 256, 256", "(m + 255) / 256, 256");
    assert!(log(&host).contains("candidate.hip:7:19: error: use of undeclared identifier 'm'"), "{}", log(&host));
    let device = kernel("y[i] = undeclared(i);");
    assert!(log(&device).contains("candidate.hip:4:8: error: use of undeclared"), "{}", log(&device));
    // Only when code is made for a side is what lies on the other one seen.
    let across = REFERENCE.replace("static __global__", "int here() { return 1; }\nstatic __global__");
    let across = across.replace("y[i] += x[i]", "y[i] += here()");
    assert!(
        log(&across).contains("candidate.hip:5:24: error: no matching function for call to 'here'"),
        "{}",
        log(&across)
    );
    let from_host = REFERENCE.replace("    add_kernel<<<", "    __syncthreads();\n    add_kernel<<<");
    assert!(log(&from_host).contains("candidate.hip:7:5: error: no matching function"), "{}", log(&from_host));
    // What assembles and links alone would find.
    assert!(log(&kernel("asm volatile(\"v_no_such v0\");")).contains("error:"));
    let declared = REFERENCE.replace("static __global__", "__device__ float other(int);\nstatic __global__");
    assert!(log(&declared.replace("y[i] += x[i]", "y[i] += other(i)")).contains("other"));
    let too_much = kernel("__shared__ float tile[20000]; tile[i] = x[i]; __syncthreads(); y[i] = tile[n];");
    assert!(log(&too_much).contains("local memory (80000) exceeds limit (65536)"), "{}", log(&too_much));
}

#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn another_entry_than_the_task_asks_for_is_another_interface() {
    let defined = "extern \"C\" void add(__half *y";
    for other in ["extern \"C\" void plus(__half *y", "extern \"C\" int add(__half *y", "void add(float *z, __half *y"]
    {
        let failure = compiled(Gfx::Gfx90a, &REFERENCE.replace(defined, other)).unwrap().unwrap_err();
        assert!(matches!(failure, Failure::Interface { .. }), "{failure:?}");
    }
    // A label in inline assembly is no function, whatever stands around it.
    let text = REFERENCE.replace(defined, "extern \"C\" void plus(__half *y");
    let label = "asm(\".globl add\\n.type add,@function\\n# define void @add()\\nadd:\\n\\tret\");";
    for label in [label, &label.replace("# define void @add()\\n", "")] {
        assert!(compiled(Gfx::Gfx90a, &format!("{text}{label}")).unwrap().is_err(), "{label}");
    }
}

#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn nothing_is_timed_or_certified_and_a_reference_that_does_not_compile_is_the_task_s_fault() {
    let (workshop, task) = (workshop(Gfx::Gfx90a), task_of("gfx90a", REFERENCE).unwrap());
    let suite = Suite::of_task(&task);
    let baseline = run(workshop.prepare(&task, &suite, &PLAN)).unwrap();
    assert!(baseline.timings.is_empty() && baseline.build.contains("--offload-arch=gfx90a"), "{}", baseline.build);
    let told = run(workshop.rebuild(&task, &Candidate::new(REFERENCE))).unwrap_err();
    assert!(matches!(&told, Fault::Absent(why) if why.starts_with("compiled, not run")), "{told}");
    let broken = task_of("gfx90a", &REFERENCE.replace("y[i] += x[i]", "y[i] += z")).unwrap();
    assert!(run(workshop.prepare(&broken, &suite, &PLAN)).unwrap_err().to_string().contains("reference.hip:4:"));
}

#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn macros_of_a_task_are_seen_by_both_halves_and_what_lies_beside_the_compiler_s_folder_by_none() {
    let wants = |side: &str| {
        format!(
            "#if defined(__HIP_DEVICE_COMPILE__) == {side} && (!defined(GIVEN) || defined(__linux__))\n#error {side}\n#endif\n"
        )
    };
    let workshop = workshop(Gfx::Gfx90a);
    let with = |flags: &str, source: &str| {
        let flags = TASK.replace("ARCH", "gfx90a").replace("entry =", &format!("flags = [{flags}]\nentry ="));
        let task = task_with(&flags, REFERENCE).unwrap();
        run(workshop.build(&task, &Candidate::new(source))).unwrap().err()
    };
    for side in ["0", "1"] {
        let source = format!("{}{REFERENCE}", wants(side));
        assert_eq!(with("\"-DGIVEN\", \"-U__linux__\"", &source), None, "{side}");
        for flags in ["\"-DGIVEN\"", "\"-U__linux__\""] {
            assert!(matches!(with(flags, &source), Some(Failure::Build { .. })), "{side}: {flags}");
        }
    }
    let clang = Clang::find(Gfx::Gfx90a).unwrap();
    let home = clang.program().parent().unwrap();
    // A clang's own folder lies in one that it needs as well.
    let home = if clang.program().ends_with("zig") { home } else { home.parent().unwrap() };
    let beside = tempfile::Builder::new().suffix(".h").tempfile_in(home.parent().unwrap());
    let Ok(beside) = beside else { return eprintln!("{} cannot be written to: nothing to see", home.display()) };
    let name = beside.path().file_name().unwrap().to_str().unwrap().to_owned();
    let mut paths = vec![name.clone(), format!("../{name}")];
    if fs::read_to_string("/sys/kernel/security/lsm").is_ok_and(|modules| modules.contains("landlock")) {
        paths.push(beside.path().display().to_string());
    }
    for path in paths {
        for include in [format!("#include <{path}>\n"), format!("#include \"{path}\"\n")] {
            let told = with("", &format!("{include}{REFERENCE}"));
            assert!(matches!(&told, Some(Failure::Build { log }) if log.contains(&name)), "{include}: {told:?}");
        }
    }
}

#[test]
fn an_architecture_that_there_is_none_of_and_what_a_task_in_hip_cannot_have_are_named() {
    let told = task_of("gfx1100", REFERENCE).unwrap_err();
    assert!(told.contains("not compiled for \"gfx1100\": there are gfx90a, gfx942, gfx950"), "{told}");
    let load = |change: &dyn Fn(String) -> String| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("reference.hip"), REFERENCE).unwrap();
        fs::write(folder.path().join("task.toml"), change(TASK.replace("arch = \"ARCH\"\n", ""))).unwrap();
        load::task(folder.path()).map_err(|why| why.to_string())
    };
    assert_eq!(load(&|text| text).unwrap().gfx(), Some(Gfx::Gfx90a), "the usual one");
    let told = load(&|text| text.replace("\"hip\"", "\"cuda\"").replace("entry =", "arch = \"gfx942\"\nentry ="));
    assert!(told.unwrap_err().contains("a task in this language has no arch"));
    let told = load(&|text| text.replace("entry =", "processor = \"K1\"\nentry ="));
    assert!(told.unwrap_err().contains("a task in this language has no processor"));
    let told = load(&|text| text.replace("entry =", "flags = [\"-mcpu=gfx1100\"]\nentry ="));
    assert!(told.unwrap_err().contains("this flag is not allowed"));
    let told = load(&|text| format!("{text}\n[[baseline]]\nname = \"b\"\nsource = \"reference.hip\"\n"));
    assert!(told.unwrap_err().contains("a task in \"hip\" is timed against nothing"));
}

/// Each name that HIP's header has, once, but for AMD's own instructions.
const NAMES: &str = r"
#include <hip/hip_fp16.h>
__global__ __launch_bounds__(256, 2) void every(float *f, __half2 *h, __hip_bfloat16 *b, int *i, unsigned *u) {
    HIP_DYNAMIC_SHARED(float, fast)
    const int at = hipBlockIdx_x * hipBlockDim_x + hipThreadIdx_x + hipGridDim_x + hipThreadIdx_y + hipThreadIdx_z +
                   hipBlockIdx_y + hipBlockIdx_z + hipBlockDim_y + hipBlockDim_z + hipGridDim_y + hipGridDim_z;
    fast[__lane_id()] = __shfl(f[at], 1) + __shfl_xor(f[at], 2) + __shfl_down(f[at], 4) + __shfl_up(f[at], 8, warpSize);
    __syncthreads();
    __threadfence();
    __threadfence_block();
    const float4 four = make_float4(fast[0], fmaf(f[0], f[1], f[2]), fabsf(f[3]), fminf(f[4], fmaxf(f[5], sqrtf(f[6]))));
    atomicAdd(f, four.x + four.y + four.z + four.w + rsqrtf(expf(exp2f(logf(__expf(floorf(ceilf(f[7]))))))));
    atomicAdd(i, min(i[0], max(i[1], i[2])));
    atomicAdd(u, u[1]);
    __half2 x = h[at], y = __floats2half2_rn(f[0], f[1]), z = __float2half2_rn(f[2]);
    x = __hfma2(__hadd2(x, y), __hsub2(x, z), __hmul2(y, z));
    const __half s = __hfma(__low2half(x), __high2half(y), __hadd(__float2half_rn(f[3]), __hsub(z.x, __hmul(x.x, y.y))));
    const float2 w = __half22float2(__half2half2(s));
    h[at] = __halves2half2(__float2half(w.x + __low2float(x)), __float2half(w.y + __high2float(y)));
    b[at] = __float2bfloat16(__bfloat162float(b[at]) + __half2float(s));
}
static hipError_t host(float *f, const float *from, __half2 *h, __hip_bfloat16 *b, int *i, unsigned *u, hipStream_t stream) {
    float *own, *other;
    if (hipMalloc((void **)&own, 4) != hipSuccess || hipMallocAsync(&other, 4, stream) == hipErrorOutOfMemory) return hipErrorUnknown;
    hipMemsetAsync(own, 0, 4, stream);
    hipMemcpyAsync(own, from, 4, hipMemcpyDeviceToDevice, stream);
    hipMemcpyKind kinds[] = {hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost};
    const hipFuncAttribute attribute = hipFuncAttributeMaxDynamicSharedMemorySize;
    hipFuncSetAttribute((const void *)every, attribute, 65536 + kinds[0]);
    hipLaunchKernelGGL(HIP_KERNEL_NAME(every), dim3(1), dim3(64), 256, stream, f, h, b, i, u);
    void *arguments[] = {&f, &h, &b, &i, &u};
    hipLaunchKernel((const void *)every, dim3(1), dim3(64), arguments, 256, stream);
    hipFreeAsync(other, stream);
    hipFree(own);
    return hipGetErrorString(hipPeekAtLastError()) ? hipGetLastError() : hipErrorInvalidValue;
}
";

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn what_hip_names_builds_for_an_nvidia_gpu_too_and_what_amd_alone_has_does_not() {
    let options = cuda::Options::new(env!("CARGO_BIN_EXE_warpsmith-kernel").into(), vec![], cache());
    let hopper = || Arch::Cuda { major: 9, minor: 0 };
    for example in ["matmul_fp16", "matmul_fp32"] {
        let task = load::task(&PathBuf::from("../examples/hip").join(example)).unwrap().on_cuda().unwrap();
        cuda::build_reference(&options, hopper(), &task).unwrap().unwrap();
    }
    // One in bfloat16, by the compiler's own name for it.
    let task = load::task(&PathBuf::from("features/mi350/02_mxfp4")).unwrap().on_cuda().unwrap();
    cuda::build_reference(&options, hopper(), &task).unwrap().unwrap();
    let task = task_of("gfx90a", REFERENCE).unwrap().on_cuda().unwrap();
    let failure = |text: &str| {
        let candidate = Candidate::new(format!("{text}{REFERENCE}")).on_cuda();
        cuda::build_candidate(&options, hopper(), &task, &candidate).unwrap().err()
    };
    assert_eq!(failure(NAMES), None);
    let amd = "__global__ void own(float *f) { f[0] = __builtin_amdgcn_rcpf(f[0]); }\n";
    assert!(matches!(failure(amd), Some(Failure::Build { log }) if log.contains("__builtin_amdgcn_rcpf")));
}
