//! A pilot job for Slurm: one worker a node, as long as the job lasts.

use super::WorkerArgs;
use crate::config::{Config, Word};
use clap::Args;
use std::path::Path;

/// What the script asks Slurm for.
#[derive(Clone, Debug, Args)]
pub struct SlurmArgs {
    /// Print a script for sbatch that starts a worker on each of some nodes, and do nothing else.
    #[arg(long, help_heading = "Slurm")]
    pub slurm: bool,
    /// Nodes: each is a job of its own, which comes and goes by itself.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..),
          requires = "slurm", help_heading = "Slurm")]
    pub nodes: u32,
    /// Generic resources of each node, such as gpu:8.
    #[arg(long, value_name = "LIST", requires = "slurm", help_heading = "Slurm")]
    pub gres: Option<String>,
    /// How long each may work, in hours.
    #[arg(long, value_name = "N", default_value_t = 12.0, value_parser = hours, requires = "slurm", help_heading = "Slurm")]
    pub hours: f64,
    /// The partition.
    #[arg(long, value_name = "NAME", requires = "slurm", help_heading = "Slurm")]
    pub partition: Option<String>,
    /// Another line for sbatch, such as --account=lab; may be given more than once.
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true, requires = "slurm", help_heading = "Slurm")]
    pub sbatch: Vec<String>,
}

/// A year.
const MOST_HOURS: f64 = 8784.0;

fn hours(text: &str) -> Result<f64, String> {
    let read = text.parse().ok().filter(|hours: &f64| *hours > 0.0 && *hours <= MOST_HOURS);
    read.ok_or_else(|| format!("expected hours, more than 0 and at most {MOST_HOURS}"))
}

/// The seconds before its time limit at which a worker is told to end.
const NOTICE_S: u32 = 180;
/// How long it then may take to finish what is under way, in seconds.
const GRACE_S: u32 = NOTICE_S - 60;
/// The same where the job is cancelled, requeued or preempted: Slurm kills it after 30 s (`KillWait`).
const HURRY_S: u32 = 20;

/// The script. A job that is requeued, or a node that is lost, costs the jobs under way there and nothing else: they are
/// given to another worker.
pub(super) fn script(worker: &WorkerArgs, settings: Option<&Path>, config: &Config) -> String {
    let arguments = &worker.slurm;
    let minutes = ((arguments.hours * 60.0).ceil() as u64).max(5);
    let mut options = vec![
        "--job-name=warpsmith-worker".to_owned(),
        format!("--array=1-{}", arguments.nodes),
        "--nodes=1 --ntasks=1 --exclusive".to_owned(),
        format!("--time={minutes}"),
        format!("--signal=B:USR1@{NOTICE_S}"),
        "--requeue --open-mode=append --output=warpsmith-worker-%A-%a.log".to_owned(),
    ];
    options.extend(arguments.gres.iter().map(|gres| format!("--gres={gres}")));
    options.extend(arguments.partition.iter().map(|partition| format!("--partition={partition}")));
    options.extend(arguments.sbatch.iter().cloned());
    let options = format!("#SBATCH {}\n", options.join("\n#SBATCH "));
    let name = worker.name.as_deref().map_or_else(|| "\"$(hostname -s)".to_owned(), |name| quoted(name) + "\"");
    let flags = flags(worker, settings, config);
    format!(
        "#!/bin/bash\n{options}\n\
         warpsmith worker{flags} --grace {GRACE_S} \\\n    \
         --name {name}-${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}-${{SLURM_ARRAY_TASK_ID:-0}}-${{SLURM_RESTART_COUNT:-0}}\" &\n\
         worker=$!\n\
         # {NOTICE_S} s before the time is over the worker is told to end: it finishes what it can, and gives the rest back.\n\
         trap 'kill -TERM $worker 2> /dev/null' USR1\n\
         # Cancelled, requeued or preempted, a job is killed after 30 s: the worker gives back what it has not finished before.\n\
         trap '{{ kill -TERM $worker; sleep {HURRY_S}; kill -INT $worker; }} 2> /dev/null' TERM\n\
         # A wait ends with every signal; the last one has the worker's own status.\n\
         while kill -0 $worker 2> /dev/null; do wait $worker; done\n\
         wait $worker\n"
    )
}

/// What the worker was asked for, as a shell reads it; where its server is stands here even if only a file says it.
fn flags(worker: &WorkerArgs, settings: Option<&Path>, config: &Config) -> String {
    let path = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    let problem = &worker.problem;
    let all = [
        ("--config", settings.map(path)),
        ("--hosts", Some(config.hosts.url.clone())),
        ("--hosts-credentials", Some(config.hosts.credentials.clone()).filter(|file| !file.is_empty())),
        ("--gpus", Some(worker.gpus.clone().unwrap_or_else(|| "all".to_owned()))),
        ("--lanes", Some(worker.lanes.join(",")).filter(|lanes| !lanes.is_empty())),
        ("--identity", worker.identity.as_deref().map(path)),
        ("--at-once", worker.at_once.map(|count| count.to_string())),
        ("--simulate", worker.simulate.map(|count| count.to_string())),
        ("--device", problem.device.clone()),
        ("--reference", problem.reference.map(|mode| mode.name().to_owned())),
        ("--beyond", problem.beyond.map(|beyond| beyond.name().to_owned())),
        ("--precision", problem.precision.map(|precision| precision.word().to_owned())),
        ("--baselines", problem.baselines.as_ref().map(ToString::to_string)),
        ("--kernelbench", problem.kernelbench.as_deref().map(|folder| path(Path::new(folder)))),
        ("--python", problem.python.clone()),
        ("--profiler", problem.profiler.map(|kind| kind.name().to_owned())),
        ("--metrics-set", problem.metrics_set.clone()),
    ];
    let given = all.into_iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", quoted(&value?))));
    given.collect()
}

/// As one word of a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Given {
        #[command(flatten)]
        worker: WorkerArgs,
    }

    #[test]
    fn a_script_asks_for_what_was_asked_and_a_shell_can_read_it() {
        let mut config = Config::default();
        config.hosts.url = "nats://head:4222".to_owned();
        config.hosts.credentials = "/etc/it's.creds".to_owned();
        let given = "worker --slurm --nodes 4 --gres gpu:8 --hours 1.5 --sbatch --account=lab --lanes problem,cuda --name lab \
                     --at-once 3 --baselines eager,compile --profiler torch --reference ieee --precision bf16 --identity /etc/seed";
        let given = <Given as clap::Parser>::parse_from(given.split_whitespace());
        let script = script(&given.worker, Some(Path::new("/etc/warpsmith.toml")), &config);
        for line in ["#SBATCH --array=1-4", "#SBATCH --gres=gpu:8", "#SBATCH --time=90", "#SBATCH --account=lab"] {
            assert!(script.lines().any(|own| own == line), "{line} is not in {script}");
        }
        let flags = r"warpsmith worker --config '/etc/warpsmith.toml' --hosts 'nats://head:4222' --hosts-credentials '/etc/it'\''s.creds' --gpus 'all' --lanes 'problem,cuda' --identity '/etc/seed' --at-once '3' --reference 'ieee' --precision 'bf16' --baselines 'eager,compile' --profiler 'torch' --grace 120";
        assert!(script.contains(flags) && script.contains("--name 'lab'\"-$"), "{flags} is not in {script}");
        let mut shell = std::process::Command::new("bash");
        let child = shell.arg("-n").stdin(std::process::Stdio::piped()).spawn();
        let mut child = child.unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{script}");
    }
}
