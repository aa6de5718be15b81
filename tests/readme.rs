//! Does what README.md and docs/COMMANDS.md show work?

const PAGE: &str = include_str!("../README.md");

const COMMANDS: &str = include_str!("../docs/COMMANDS.md");

/// The first fenced block of this kind.
fn block(kind: &str) -> &'static str {
    let (_, rest) = COMMANDS.split_once(&format!("```{kind}\n")).expect("docs/COMMANDS.md shows one");
    rest.split_once("```").expect("it ends").0
}

#[test]
fn the_task_that_it_shows_is_a_task() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("task.toml"), block("toml")).unwrap();
    let reference = "#include <cstdint>\nextern \"C\" void scale(const float* x, float* out, float factor, int64_t n) \
                     { for (int64_t i = 0; i < n; ++i) out[i] = factor * x[i]; }\n";
    std::fs::write(folder.path().join("reference.cpp"), reference).unwrap();
    let task = kernelbench::load::task(folder.path()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((task.name.as_str(), task.cases.len(), task.final_cases.len()), ("scale", 1, 1));
}

/// The lines of a recipe of the justfile.
fn recipe(name: &str) -> Vec<&'static str> {
    let lines = include_str!("../justfile").lines().skip_while(|line| !line.starts_with(&format!("{name}:")));
    lines.skip(1).map_while(|line| line.strip_prefix("    ")).collect()
}

#[test]
fn ci_runs_its_two_commands_as_they_stand() {
    assert!(include_str!("../.ci/run").ends_with("\njust ci\n"));
    let needs = |name: &str| {
        let line =
            include_str!("../justfile").lines().find(|line| line.starts_with(name)).expect("it is in the justfile");
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let ci = [needs("ci:"), needs("beside:")].concat();
    assert!(ci.iter().any(|part| part == "beside"), "{ci:?}");
    for (name, command) in
        [("demo", "cargo run --release -- run examples/silu_and_mul"), ("test", "cargo test --workspace")]
    {
        assert!(ci.iter().any(|part| part == name), "{ci:?}");
        assert_eq!(recipe(name), [command]);
        assert!(PAGE.contains(&format!("\n{command}\n")), "README.md does not show {command}");
    }
}

#[test]
fn it_is_read_in_a_minute_and_its_links_lead_somewhere() {
    assert!(PAGE.lines().count() <= 120, "{} lines", PAGE.lines().count());
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for link in PAGE.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
        assert!(root.join(link).exists(), "{link}");
    }
}

/// The pages of a folder, from the root.
fn pages(folder: &str) -> Vec<String> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(root.join(folder)).expect("it is a folder");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let pages = paths.filter(|path| path.extension().is_some_and(|end| end == "md"));
    pages.map(|path| format!("{folder}/{}", path.file_name().unwrap_or_default().to_string_lossy())).collect()
}

#[test]
fn the_book_has_every_page_and_no_page_links_to_nowhere() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let summary = include_str!("../docs/SUMMARY.md");
    let all: Vec<String> = ["docs", "docs/results", "docs/results/log", "docs/methodology"].map(pages).concat();
    for page in all.iter().filter(|page| *page != "docs/SUMMARY.md") {
        assert!(summary.contains(&format!("]({page})")), "docs/SUMMARY.md does not name {page}");
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let made = link.is_empty() || link == "example-report.html" || link.starts_with("http");
            assert!(made || root.join(page).parent().unwrap().join(link).exists(), "{page} links to {link}");
        }
    }
}

/// Every command of the program that a fenced block shows is one that it knows.
#[test]
fn the_commands_that_it_shows_are_commands() {
    let fenced = PAGE.split("```").skip(1).step_by(2).flat_map(str::lines).flat_map(|line| line.split("&&"));
    let words: Vec<Vec<&str>> = fenced.map(|line| line.split_whitespace().collect()).collect();
    let ours: Vec<&[&str]> = words
        .iter()
        .filter_map(|words| words.split_at_checked(words.iter().position(|w| *w == "warpsmith")?))
        .map(|(_, ours)| ours)
        .collect();
    assert!(ours.len() >= 6, "{ours:?}");
    for words in ours {
        let parsed = warpsmith::cli::parse(words.iter().map(std::ffi::OsString::from));
        assert!(parsed.is_ok(), "{words:?}: {}", parsed.err().map(|e| e.to_string()).unwrap_or_default());
    }
}

#[test]
fn commands_md_names_every_command() {
    let command = <warpsmith::cli::Cli as clap::CommandFactory>::command();
    let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    assert!(names.len() > 30, "{names:?}");
    let told = |name: &str| {
        ["`", "warpsmith "]
            .iter()
            .any(|before| COMMANDS.split(&format!("{before}{name}")).skip(1).any(|rest| rest.starts_with([' ', '`'])))
    };
    let missing: Vec<&&str> = names.iter().filter(|name| !told(name)).collect();
    assert!(missing.is_empty(), "docs/COMMANDS.md says nothing of {missing:?}");
}

#[test]
fn the_rust_that_it_asks_for_is_the_one_that_the_manifest_asks_for() {
    let version = env!("CARGO_PKG_RUST_VERSION");
    assert!(PAGE.contains(&format!("You need Rust {version} or newer")), "Cargo.toml asks for {version}");
}
