//! What do the prompts look like? One rendering of each page, to be read by people; and what holds for all of them.

use crate::{Prompts, example, library};
use minijinja::Value;
use std::collections::BTreeMap;

/// A page as a reader sees it.
fn shown(page: &str, values: &Value) -> String {
    let prompt = Prompts::embedded().page(page, values);
    let turns: Vec<String> =
        prompt.turns.iter().map(|turn| format!("<<< {:?} >>>\n{}", turn.speaker, turn.text)).collect();
    format!("<<< System >>>\n{}\n{}\n", prompt.system, turns.join("\n"))
}

#[test]
fn each_page_reads_like_this() {
    let mut faces: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (page, values) in example::pages() {
        faces.entry(page).or_default().push(values);
    }
    assert_eq!(faces.len(), library::PAGES.len());
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../tests/snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for (page, faces) in &faces {
            insta::assert_snapshot!(*page, shown(page, &faces[0]));
        }
        for (name, page, values) in example::more_faces() {
            insta::assert_snapshot!(name, shown(page, &values));
        }
    });
}

#[test]
fn a_parameter_that_a_transformation_retires_is_named_and_where_none_is_nothing_is_said() {
    let prompts = Prompts::embedded();
    let asked = example::pages().into_iter().filter(|(page, _)| *page == "transform");
    let told =
        asked.map(|(_, values)| prompts.text("transform.user", &values).contains("`WIDTH` is no tuning parameter"));
    let told: Vec<bool> = told.collect();
    assert!(told.contains(&true) && told.contains(&false), "{told:?}");
}

#[test]
fn a_page_that_asks_for_json_says_which_keys_before_a_reply_is_refused_for_others() {
    let (mut asking, prompts) = (0, Prompts::embedded());
    for (page, values) in example::pages() {
        let form = prompts.text(&format!("{page}.form"), &values);
        let Some((_, keys)) = form.split_once("One JSON object").filter(|_| form.contains("\": ")) else { continue };
        let shown = prompts.page(page, &values);
        let shown: String = shown.turns.iter().map(|turn| turn.text.as_str()).chain([shown.system.as_str()]).collect();
        assert!(shown.contains(keys.trim()), "{page} does not say: {form}");
        asking += 1;
    }
    assert!(asking > 5, "{asking} pages");
}

#[test]
fn the_embedded_templates_pass_the_check_that_a_projects_own_must_pass() {
    Prompts::with([]).unwrap();
}
