//! Can both halves of a source in CUDA be compiled at the same time?
//!
//! nvcc compiles the processor's half and the GPU's one after the other, though only its last step needs both. It tells its
//! steps where it is asked to (`--dryrun`); here they become a script that takes them side by side. Where its steps are
//! others than those known here, there is no script, and nvcc does it alone.

/// What nvcc sets for its steps, as far as they need it.
const VARIABLES: [&str; 5] = ["TOP", "CICC_PATH", "NVVMIR_LIBRARY_DIR", "LD_LIBRARY_PATH", "PATH"];
/// What names a translation unit within its program, which has but one of them.
const UNIT: &str = "_00000000_12_candidate_cu_0a1b2c3d";
/// How the step that draws such a name is told to, and where it finds one otherwise.
const DRAWS: &str = "--gen_module_id_file ";

/// The script of the steps that nvcc tells of one source; `None` where they are not known.
pub(crate) fn script(told: &str) -> Option<String> {
    let lines: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("#$ ")).map(str::trim).collect();
    let (set, steps): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| variable(line).is_some());
    let steps: Vec<&str> = steps.into_iter().filter(|step| !step.starts_with("rm ")).collect();
    let place = |what: &[&str]| steps.iter().position(|step| what.iter().all(|part| step.contains(part)));
    let first = place(&[" -E ", "candidate.cpp4.ii\""])?;
    let host = place(&["cudafe++ ", DRAWS, "candidate.module_id", "candidate.cudafe1.cpp"])?;
    let own = place(&[" -E ", "candidate.cpp1.ii\""])?;
    let device = place(&["cicc\" ", "candidate.module_id", "candidate.ptx"])?;
    let assembled = place(&["ptxas ", "candidate.cubin"])?;
    let packed = place(&["fatbinary ", "candidate.fatbin.c"])?;
    let last = place(&[" -c ", "\"candidate.cudafe1.cpp\"", "candidate.o"])?;
    let mut seen = [first, host, own, device, assembled, packed, last];
    seen.sort_unstable();
    if steps.len() != seen.len() || seen.windows(2).any(|pair| pair[0] == pair[1]) {
        return None;
    }
    let set = set.iter().filter_map(|line| variable(line)).filter(|(name, _)| VARIABLES.contains(name));
    let set = set.map(|(name, value)| exported(name, value)).collect::<Option<Vec<String>>>()?.concat();
    let step = |at: usize| steps[at].split(" > /").next().unwrap_or_default().replace(DRAWS, "");
    let row = |all: &[usize]| all.iter().map(|at| step(*at)).collect::<Vec<_>>().join(" && ");
    Some(format!(
        "{set}printf %s {UNIT} > candidate.module_id || exit\n({}) &\nhost=$!\n{}\ndevice=$?\nwait $host && [ $device = 0 ] && {}\n",
        row(&[first, host]),
        row(&[own, device, assembled, packed]),
        step(last),
    ))
}

/// A line that sets a variable: its name, and its value.
fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let named = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    named.then_some((name, value.trim()))
}

/// The same for a shell; `None` where the value would mean something else there.
fn exported(name: &str, value: &str) -> Option<String> {
    let plain = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/.:-_+~,@% ".contains(&byte));
    plain.then(|| format!("export {name}=\"{value}\"\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = r#"#$ _SPACE_= 
#$ TOP=/cuda/bin/..
#$ CICC_PATH=/cuda/bin/../nvvm/bin
#$ PATH=/cuda/bin:/usr/bin
#$ INCLUDES="-I/cuda/include"  
#$ gcc -std=c++17 -E -x c++ -fPIC -m64 "candidate.cu" -o "candidate.cpp4.ii" 
#$ gcc -D__CUDA_ARCH__=900 -E -x c++ -fPIC -m64 "candidate.cu" -o "candidate.cpp1.ii" 
#$ cudafe++ --c++17 --gen_c_file_name "candidate.cudafe1.cpp" --gen_module_id_file --module_id_file_name "candidate.module_id" "candidate.cpp4.ii" 
#$ "$CICC_PATH/cicc" --c++17 --module_id_file_name "candidate.module_id" "candidate.cpp1.ii" -o "candidate.ptx"
#$ ptxas -arch=sm_90a -m64  "candidate.ptx"  -o "candidate.cubin"  > /tmp/one_stdout 2>/tmp/one_stderr
#$ fatbinary --create="candidate.fatbin" -64 "--image3=kind=elf,sm=90a,file=candidate.cubin" --embedded-fatbin="candidate.fatbin.c" 
#$ rm candidate.fatbin
#$ gcc -D__CUDA_ARCH__=900 -c -x c++ -fPIC -m64 "candidate.cudafe1.cpp" -o "candidate.o" 
"#;

    #[test]
    fn the_gpus_half_is_compiled_beside_the_processors_and_the_last_step_waits_for_both() {
        let script = script(TOLD).expect("these steps are known");
        let at = |what: &str| script.find(what).unwrap_or_else(|| panic!("{what} is missing: {script}"));
        assert!(at("cudafe++ ") < at(") &\n") && at(") &\n") < at("cicc\" ") && at("ptxas ") < at("wait $host"));
        assert!(at("wait $host") < at("\"candidate.cudafe1.cpp\" -o"));
        assert!(!script.contains(DRAWS) && !script.contains("INCLUDES") && !script.contains("/tmp/"), "{script}");
    }

    #[test]
    fn steps_that_are_not_known_are_left_to_nvcc() {
        assert_eq!(script(""), None);
        assert_eq!(script(&TOLD.replace("#$ ptxas", "#$ nvlink x\n#$ ptxas")), None);
        assert_eq!(script(&TOLD.replace(DRAWS, "")), None);
        assert_eq!(script(&TOLD.replace("/cuda/bin:/usr", "$(rm -r x):/usr")), None);
    }

    /// Where there is a real one.
    #[test]
    fn the_steps_of_nvcc_are_known_and_give_an_object() {
        use std::process::Command;
        let Some(nvcc) = crate::backend::cuda::find_nvcc() else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let text = "namespace { __global__ void k(float *y) { *y = 1; } }\nextern \"C\" void go(float *y) { k<<<1, 1>>>(y); }\n";
        std::fs::write(folder.path().join("candidate.cu"), text).expect("a file");
        let mut command = Command::new(nvcc);
        command.args(["--threads=2", "-gencode=arch=compute_90a,code=sm_90a", "-std=c++17", "-c", "-Xcompiler=-fPIC"]);
        command.args(["-o", "candidate.o", "candidate.cu", "--dryrun", "--keep"]).current_dir(folder.path());
        let told = String::from_utf8_lossy(&command.output().expect("nvcc").stderr).into_owned();
        let script = script(&told).unwrap_or_else(|| panic!("not known: {told}"));
        let ran = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().expect("a shell");
        assert!(ran.status.success(), "{script}\n{}", String::from_utf8_lossy(&ran.stderr));
        let object = std::fs::read(folder.path().join("candidate.o")).expect("an object");
        let holds = |what: &[u8]| object.windows(what.len()).any(|part| part == what);
        assert!(holds(b"go\0") && holds(b"__cudaRegisterFatBinary") && holds(b".nv_fatbin"));
    }
}
