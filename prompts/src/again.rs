//! How is the same asked once more? (After a reply that could not be read; once.)

use crate::{Prompt, Prompts, Speaker, Turn, Unreadable, library::PAGES, words};
use minijinja::{Value, context};

/// Characters of the unreadable reply that are shown back.
const SHOWN_CHARS: usize = 16_000;

impl Prompts {
    /// The same prompt, the reply that could not be read, what was wrong with it, and the form of the reply once more.
    #[must_use]
    pub fn again(&self, prompt: &Prompt, reply: &str, why: &Unreadable) -> Prompt {
        let shown: String = words::clean(reply).chars().take(SHOWN_CHARS).collect();
        let shown = if shown.trim().is_empty() { "(an empty reply)".into() } else { shown };
        let text = self.text("again", &values(why, &self.form(prompt)));
        let mut prompt = prompt.clone();
        prompt.turns.push(Turn { speaker: Speaker::Assistant, text: shown });
        prompt.turns.push(Turn { speaker: Speaker::User, text });
        prompt
    }

    /// The form that a prompt asks for: that of the page with its system part.
    fn form(&self, prompt: &Prompt) -> String {
        let nothing = Value::from(());
        let page = PAGES.iter().find(|(page, _)| self.text(&format!("{page}.system"), &nothing) == prompt.system);
        page.map_or_else(|| "As asked for above.".into(), |(page, _)| self.text(&format!("{page}.form"), &nothing))
    }
}

pub(crate) fn values(why: &Unreadable, form: &str) -> Value {
    context! { why => words::one_line(&why.0).trim_end_matches('.'), form => form }
}
