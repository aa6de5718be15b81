//! What a round knows of the architecture's features: which the Judge is offered, and which examples the Coder is given.

use super::Loop;
use crate::head;
use crate::policy::Guidance;
use kernelbench::CandidateId;
use metrics::Profile;
use prompts::{Fix, Offered, Optimization};

impl Loop {
    fn guidance(&self) -> Guidance {
        self.policy.features.unwrap_or_default()
    }

    /// The features that the Judge is offered, where the policy has it offered any.
    pub(super) fn offered(&self, profile: Option<&Profile>) -> Vec<Offered> {
        if self.guidance() == Guidance::Off {
            return vec![];
        }
        self.crew.prompts.offer(&self.task, &self.crew.machine, profile, &head::staying(self.book.so_far()))
    }

    /// An optimization as the Coder is told it: with the features whose examples it is to be given.
    pub(super) fn guided(&self, optimization: Optimization) -> Optimization {
        let guides = self.guidance() == Guidance::Guides;
        Optimization { features: if guides { optimization.features } else { vec![] }, ..optimization }
    }

    /// A fix with the features that the failed candidate was to bring in: they are looked up again.
    pub(super) fn guided_again(&self, fix: Fix, failed: &CandidateId) -> Fix {
        let guides = self.guidance() == Guidance::Guides;
        Fix { features: if guides { self.book.so_far().features_of(failed) } else { vec![] }, ..fix }
    }
}
