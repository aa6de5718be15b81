//! The roll: which workers there are and what each does, in a file of the run's folder for whoever asks for its status.

use super::Courier;
use std::{fs, sync::Arc, time::Duration};
use warpsmith::hosts::{Roll, RollDevice, RollWorker};

/// How often it is written.
const EVERY: Duration = Duration::from_millis(700);
/// How soon it is written first: a short run is over before it would be written again.
const SOON: Duration = Duration::from_millis(50);

impl Courier {
    /// Writes it again and again, for ever.
    pub(super) async fn write_roll(self: Arc<Self>) {
        let (began, mut pause) = (tokio::time::Instant::now(), SOON);
        loop {
            tokio::time::sleep(pause).await;
            let minutes = began.elapsed().as_secs_f64() / 60.0;
            let text = serde_json::to_vec_pretty(&self.roll(minutes)).unwrap_or_default();
            let (path, new) = (self.wanted.folder.join(Roll::FILE), self.wanted.folder.join("hosts.json.new"));
            // The folder is not there before the run begins; a status that is a few seconds old does no harm.
            let written = self.wanted.folder.is_dir() && fs::write(&new, text).is_ok() && fs::rename(new, path).is_ok();
            pause = if written { EVERY } else { SOON };
        }
    }

    fn roll(&self, minutes: f64) -> Roll {
        let (state, silence) = (self.state(), self.silence());
        let workers = state.workers.values().map(|seen| {
            let facts = &seen.facts;
            let devices = facts.slots.values().filter(|place| place.lanes.values().any(|class| *class == self.class));
            let devices = devices.map(|place| RollDevice {
                device: place.device.clone(),
                doing: place
                    .doing
                    .values()
                    .map(|doing| format!("{} {} {} s", doing.step, doing.task, doing.seconds))
                    .collect(),
            });
            RollWorker {
                name: facts.name.clone(),
                host: facts.host.clone(),
                key: facts.key.clone(),
                silent_s: seen.at.elapsed().as_secs(),
                lost: seen.at.elapsed() > silence,
                devices: devices.collect(),
            }
        });
        Roll {
            server: self.server.url.clone(),
            class: self.class.clone(),
            written: jiff::Timestamp::now().to_string(),
            jobs: state.tally.done,
            jobs_a_minute: state.tally.done as f64 / minutes.max(1e-3),
            redelivered: state.tally.redelivered,
            twice: state.tally.twice,
            refused: state.tally.refused,
            moved: state.tally.moved,
            workers: workers.collect(),
        }
    }
}
