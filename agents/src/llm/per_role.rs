//! What if a role has an endpoint of its own? Each call goes to its role's.

use super::{Answer, Call, Llm, Role};
use std::{collections::BTreeMap, sync::Arc};

/// Models by role, and one for all others.
pub struct PerRole {
    others: Arc<dyn Llm>,
    own: BTreeMap<Role, Arc<dyn Llm>>,
}

impl PerRole {
    /// These roles have a port of their own.
    #[must_use]
    pub fn new(others: Arc<dyn Llm>, own: BTreeMap<Role, Arc<dyn Llm>>) -> Self {
        Self { others, own }
    }
}

impl Llm for PerRole {
    fn describe(&self) -> String {
        let own = self.own.iter().map(|(role, llm)| format!("; {}: {}", role.name(), llm.describe()));
        self.others.describe() + &own.collect::<String>()
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        self.own.get(&call.id.role).unwrap_or(&self.others).ask(call)
    }
}
