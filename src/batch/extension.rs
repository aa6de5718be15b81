//! Is a run given more than it had, and does that help?

use agents::{
    event::{End, Event},
    planner::Limit,
    trajectory::Trajectory,
};

/// What a run that goes on is given now, beside what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct More {
    /// How many rounds it may have in all, those that were spent on look-ups among them.
    pub rounds: Option<u32>,
    /// Whether a limit was named.
    pub limit: bool,
    /// Whether a model was named.
    pub model: bool,
}

impl More {
    /// Whether it is given anything.
    #[must_use]
    pub fn is_some(self) -> bool {
        self.rounds.is_some() || self.limit || self.model
    }

    /// What is to be noted in a task's record before it goes on: nothing where it goes on anyhow, or has ended and is given
    /// nothing. `rounds` are those that it has, `limit` is what it is held against now.
    ///
    /// # Errors
    ///
    /// Why what it is given does not help, and what would.
    pub fn for_task(self, story: &Trajectory, rounds: u32, limit: &Limit) -> Result<Option<Event>, String> {
        let written = story.spent();
        if let Some(given) = self.rounds
            && given < written.max(1) + u32::from(story.end.is_some())
        {
            return Err(format!("--rounds {given} gives it nothing: {written} rounds are done; name more than that"));
        }
        let changed = self.rounds.filter(|given| *given != rounds);
        let Some(end) = story.end.filter(|_| self.is_some()) else {
            let going_on = story.end.is_none() && changed.is_some();
            return Ok(going_on.then_some(Event::Extended { rounds: changed }));
        };
        let helps = match end {
            End::OutOfRounds | End::Stopped | End::Finished => self.rounds.is_some(),
            End::RecordEnds => self.model,
            End::SequenceEnds | End::Stuck | End::Searched | End::Counted | End::Compiled | End::Stalled => false,
            _ => self.limit,
        };
        if !helps {
            return Err(needs(end, written));
        }
        if let Some(reached) = limit(&Trajectory { end: None, ..story.clone() }).and_then(End::limit) {
            let flag = reached.replace('_', "-");
            return Err(format!("it has used up as much as --{flag} allows already; name more"));
        }
        Ok(Some(Event::Extended { rounds: changed }))
    }
}

/// What a run that ended so needs to go on.
fn needs(end: End, written: u32) -> String {
    match end {
        End::OutOfRounds => format!("it ended because its {written} rounds were done: --rounds N gives it more"),
        End::Stopped => format!("it was stopped by its planner after {written} rounds: --rounds N makes it go on"),
        End::Finished => format!("it was told to finish after {written} rounds: --rounds N makes it go on"),
        End::RecordEnds => {
            "it ended where the record that answered holds no further reply: --model names another".to_owned()
        }
        End::SequenceEnds => {
            "it ended because every transformation was applied: `warpsmith transform RUN NAME` applies another"
                .to_owned()
        }
        End::Searched => {
            "it ended because its search was over: `--evaluations N` gives a new run a longer one".to_owned()
        }
        End::Counted => {
            "it ended because a candidate is right, and on an emulated processor nothing says which of two is faster"
                .to_owned()
        }
        End::Compiled => {
            "it ended because a candidate compiles, and nothing says which of two is better where none is run"
                .to_owned()
        }
        End::Stalled => {
            "it ended because no round gained for as many as its policy bears: begin a run with another policy"
                .to_owned()
        }
        End::Stuck => {
            "it ended because a transformation failed in every try: `warpsmith transform RUN NAME` tries it again"
                .to_owned()
        }
        other => {
            let limit = other.limit().unwrap_or_default();
            format!("it ended at the limit {limit}: --{} N raises it", limit.replace('_', "-"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::{event::Step, planner::no_limit};
    use std::sync::Arc;

    fn story(end: Option<End>) -> Trajectory {
        let rounds = (1..=3).flat_map(|round| {
            let why = String::new();
            [Event::Began { round, step: Step::Seed }, Event::Unreadable { role: agents::llm::Role::Coder, why }]
        });
        rounds.chain(end.map(|end| Event::Ended { end })).collect()
    }

    fn given(more: More, end: Option<End>) -> Result<Option<Event>, String> {
        more.for_task(&story(end), 3, &no_limit())
    }

    #[test]
    fn what_ended_goes_on_where_what_it_is_given_is_what_it_lacked() {
        let (rounds, limit) = (More { rounds: Some(5), ..More::default() }, More { limit: true, ..More::default() });
        assert_eq!(given(rounds, Some(End::OutOfRounds)), Ok(Some(Event::Extended { rounds: Some(5) })));
        assert_eq!(given(limit, Some(End::Usd)), Ok(Some(Event::Extended { rounds: None })));
        assert_eq!(
            given(More { model: true, ..limit }, Some(End::RecordEnds)),
            Ok(Some(Event::Extended { rounds: None }))
        );
        assert_eq!(given(rounds, None), Ok(Some(Event::Extended { rounds: Some(5) })));
        assert_eq!(given(More::default(), Some(End::OutOfRounds)), Ok(None));
        assert_eq!(given(limit, None), Ok(None));
    }

    #[test]
    fn what_does_not_help_is_refused_with_what_would() {
        let limit = More { limit: true, ..More::default() };
        assert!(given(limit, Some(End::OutOfRounds)).unwrap_err().contains("--rounds N"));
        assert!(
            given(More { rounds: Some(3), ..limit }, Some(End::OutOfRounds)).unwrap_err().contains("3 rounds are done")
        );
        assert!(
            given(More { rounds: Some(9), ..More::default() }, Some(End::TaskUsd))
                .unwrap_err()
                .contains("--task-usd N")
        );
        let steered = given(More { rounds: Some(9), ..limit }, Some(End::Stuck)).unwrap_err();
        assert!(steered.contains("warpsmith transform RUN NAME"), "{steered}");
        let reached: Limit = Arc::new(|_| Some(End::Usd));
        assert!(limit.for_task(&story(Some(End::Usd)), 3, &reached).unwrap_err().contains("--usd allows already"));
    }
}
