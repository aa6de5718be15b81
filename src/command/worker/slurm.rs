//! A pilot job for Slurm: one worker a node, as long as the job lasts.

use crate::config::Config;
use clap::Args;

/// What the script asks Slurm for.
#[derive(Clone, Debug, Args)]
pub struct SlurmArgs {
    /// Print a script for sbatch that starts a worker on each of some nodes, and do nothing else.
    #[arg(long, help_heading = "Slurm")]
    pub slurm: bool,
    /// Nodes: each is a job of its own, which comes and goes by itself.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Slurm")]
    pub nodes: u32,
    /// Generic resources of each node, such as gpu:8.
    #[arg(long, value_name = "LIST", help_heading = "Slurm")]
    pub gres: Option<String>,
    /// How long each may work, in hours.
    #[arg(long, value_name = "N", default_value_t = 12.0, help_heading = "Slurm")]
    pub hours: f64,
    /// The partition.
    #[arg(long, value_name = "NAME", help_heading = "Slurm")]
    pub partition: Option<String>,
    /// Another line for sbatch, such as --account=lab; may be given more than once.
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true, help_heading = "Slurm")]
    pub sbatch: Vec<String>,
}

/// The seconds before its time limit at which a worker is told to end.
const NOTICE_S: u32 = 180;

/// The script. A job that is requeued, or a node that is lost, costs the jobs under way there and nothing else: they are
/// given to another worker.
pub(super) fn script(arguments: &SlurmArgs, config: &Config) -> String {
    let minutes = ((arguments.hours * 60.0).ceil() as u64).max(5);
    let mut options = vec![
        "--job-name=warpsmith-worker".to_owned(),
        format!("--array=1-{}", arguments.nodes.max(1)),
        "--nodes=1 --ntasks=1 --exclusive".to_owned(),
        format!("--time={minutes}"),
        format!("--signal=B:TERM@{NOTICE_S}"),
        "--requeue --open-mode=append --output=warpsmith-worker-%A-%a.log".to_owned(),
    ];
    options.extend(arguments.gres.iter().map(|gres| format!("--gres={gres}")));
    options.extend(arguments.partition.iter().map(|partition| format!("--partition={partition}")));
    options.extend(arguments.sbatch.iter().cloned());
    let options = format!("#SBATCH {}\n", options.join("\n#SBATCH "));
    let credentials = match config.hosts.credentials.as_str() {
        "" => String::new(),
        file => format!(" --hosts-credentials {}", quoted(file)),
    };
    let url = quoted(&config.hosts.url);
    let grace = NOTICE_S - 60;
    format!(
        "#!/bin/bash\n{options}\n\
         # Slurm tells this shell to end {NOTICE_S} s before the time is over; the worker finishes what it can, and gives\n\
         # the rest back.\n\
         warpsmith worker --hosts {url}{credentials} --gpus all --grace {grace} \\\n    \
         --name \"$(hostname -s)-${{SLURM_ARRAY_JOB_ID}}-${{SLURM_ARRAY_TASK_ID}}-${{SLURM_RESTART_COUNT:-0}}\" &\n\
         worker=$!\n\
         trap 'kill -TERM $worker' TERM\n\
         wait $worker\n\
         # The first wait ends with the signal; this one with the worker.\n\
         wait $worker\n"
    )
}

/// As one word of a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_asks_for_what_was_asked_and_a_shell_can_read_it() {
        let mut config = Config::default();
        config.hosts.url = "nats://head:4222".to_owned();
        config.hosts.credentials = "/etc/it's.creds".to_owned();
        let arguments = SlurmArgs {
            slurm: true,
            nodes: 4,
            gres: Some("gpu:8".into()),
            hours: 1.5,
            partition: None,
            sbatch: vec!["--account=lab".into()],
        };
        let script = script(&arguments, &config);
        for line in ["#SBATCH --array=1-4", "#SBATCH --gres=gpu:8", "#SBATCH --time=90", "#SBATCH --account=lab"] {
            assert!(script.lines().any(|own| own == line), "{line} is not in {script}");
        }
        let mut shell = std::process::Command::new("bash");
        let child = shell.arg("-n").stdin(std::process::Stdio::piped()).spawn();
        let mut child = child.unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{script}");
    }
}
