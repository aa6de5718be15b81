//! A lab's Slurm: workers come as jobs of an array, are requeued and cancelled, and go in time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::bed::{Bed, PATIENCE, ended, root, started, told, until};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

/// A Slurm of two pretended nodes, which ends with its standard input.
struct Slurm {
    child: Child,
    open: Option<ChildStdin>,
    conf: String,
}

impl Slurm {
    /// None where there is no Slurm, which the script has said.
    fn begin() -> Self {
        let mut command = Command::new(root().join("hosts/tests/slurm/run.sh"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let conf = line.trim().strip_prefix("SLURM_CONF=").map(str::to_owned);
        let conf = conf.expect("Slurm is here and starts: apt-get install slurm-wlm munge, as root");
        let open = child.stdin.take();
        Self { child, open, conf }
    }

    /// What one of its commands says.
    fn told(&self, words: &str) -> String {
        let mut command = Command::new("bash");
        told(self.within(command.args(["-c", words])), 0).trim().to_owned()
    }

    fn within(&self, command: &mut Command) -> Command {
        let mut own = Command::new(command.get_program());
        own.args(command.get_args()).env("SLURM_CONF", &self.conf);
        own
    }

    /// Submits an array of so many workers as a lab would; its number.
    fn submit(&self, bed: &Bed, nodes: u32, more: &str) -> String {
        let (seed, settings) = (bed.path().join("slurm.seed"), bed.path().join("settings.toml"));
        let worker = format!(
            "warpsmith worker --config {} --slurm --nodes {nodes} --gres gpu:2 --simulate 2 --at-once 1 --identity {} --hosts {}",
            settings.display(),
            seed.display(),
            bed.url()
        );
        let path = format!("{}:{}", bin(bed.path()), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        command.args(["-c", &format!("sbatch --parsable <({worker} {more})")]);
        let mut command = self.within(&mut command);
        command.current_dir(bed.path()).env("PATH", path);
        told(command, 0).trim().to_owned()
    }

    /// What is known of a job.
    fn job(&self, id: &str) -> String {
        self.told(&format!("scontrol show job --oneliner {id}"))
    }

    /// The same once its time is over: Slurm looks at its clock twice a minute.
    fn over(&self, id: &str) -> String {
        let began = Instant::now();
        loop {
            let job = self.job(id);
            if !job.contains("JobState=RUNNING") || began.elapsed() > 2 * PATIENCE {
                return job;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        drop(self.open.take());
        let _ = self.child.wait();
    }
}

/// A folder with `warpsmith`, as an administrator would have installed it.
fn bin(folder: &Path) -> String {
    let bin = folder.join("bin");
    if fs::create_dir(&bin).is_ok() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_warpsmith-hosts"), bin.join("warpsmith")).unwrap();
    }
    bin.display().to_string()
}

/// The log of a worker of an array.
fn log(bed: &Bed, array: &str, number: u32) -> String {
    fs::read_to_string(bed.path().join(format!("warpsmith-worker-{array}-{number}.log"))).unwrap_or_default()
}

/// Waits until a worker of an array has begun so many times.
fn begun(bed: &Bed, array: &str, number: u32, times: usize) {
    until("a worker has begun", || (log(bed, array, number).matches("devices, key").count() >= times).then_some(()));
}

#[test]
#[ignore = "three minutes, with Slurm: cargo test -p warpsmith-hosts --test hosts slurm -- --ignored --nocapture"]
fn an_array_that_is_requeued_cancelled_and_at_the_end_of_its_time_loses_nothing() {
    let slurm = Slurm::begin();
    let bed = Bed::begin();
    bed.tasks(60, &super::SLOW);
    let mut here = bed.batch("here", 2, false);
    here.args(["--builds", "16"]);
    let here = started(here);
    let array = slurm.submit(&bed, 2, "--sbatch=--time=1 --sbatch=--signal=B:USR1@30");
    begun(&bed, &array, 1, 1);
    begun(&bed, &array, 2, 1);
    let mut there = started(bed.batch("there", 2, true));
    bed.at_it("there", &[]);

    slurm.told(&format!("scontrol requeue {array}_1"));
    let rest = slurm.submit(&bed, 1, "--hours 1");
    begun(&bed, &rest, 1, 1);
    slurm.told(&format!("scancel {array}_2"));
    begun(&bed, &array, 1, 2);
    assert!(log(&bed, &array, 1).contains("-1-1 at nats://"), "its name says that it is the second of its place");
    let job = slurm.job(&format!("{array}_2"));
    assert!(job.contains("JobState=CANCELLED"), "{job}");

    let job = slurm.over(&format!("{array}_1"));
    assert!(job.contains("JobState=COMPLETED") && job.contains("ExitCode=0:0") && job.contains("Restarts=1"), "{job}");
    assert!(there.try_wait().unwrap().is_none(), "the batch was over before the array was: it shows nothing");

    ended(&there.wait_with_output().unwrap(), 0);
    ended(&here.wait_with_output().unwrap(), 0);
    assert_eq!(bed.verdicts("there"), bed.verdicts("here"));
    let ends =
        [log(&bed, &array, 1), log(&bed, &array, 2)].map(|log| log.matches("finishing what is under way").count());
    assert_eq!(ends, [2, 1], "each was told to end in time");
    slurm.told(&format!("scancel {rest}"));
}
