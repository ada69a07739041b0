package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const changelog = `# Changelog

## [Unreleased]

### Added

- What nobody has yet.

## [1.1.0-rc.1] - 2026-11-21

### Fixed

- A candidate.

## [1.0.0] - 2026-10-01

### Added

- The first thing.
- See [the page](docs/install.md).

### Changed

- Another.

## [0.9.0] - 2026-09-01

## [0.8.0]

- No date.

[1.0.0]: https://example.com/v1.0.0
`

func TestNotesOf(t *testing.T) {
	for _, test := range []struct{ version, want, problem string }{
		{version: "1.0.0", want: "### Added\n\n- The first thing.\n- See [the page](docs/install.md).\n\n### Changed\n\n- Another."},
		{version: "1.1.0-rc.1", want: "### Fixed\n\n- A candidate."},
		{version: "1.1.0", problem: "does not tell of 1.1.0"},
		{version: "0.9.0", problem: "nothing below"},
		{version: "0.8.0", problem: "no date"},
		{version: "Unreleased", problem: "no date"},
	} {
		got, err := notesOf(changelog, test.version)
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.version, got, test.want)
		}
		if (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%s: got the error %v, want %q", test.version, err, test.problem)
		}
	}
}

// The last section of a changelog has the page's links below it.
func TestNotesOfTheOldestHaveNoLinks(t *testing.T) {
	got, err := notesOf("## [0.1.0] - 2026-11-21\n\n- First.\n\n[0.1.0]: https://example.com\n", "0.1.0")
	if got != "- First." || err != nil {
		t.Errorf("got %q and %v, want the notes alone", got, err)
	}
}

// What is unreleased becomes a version by a heading below it, so the changelog must have the place for one.
func TestChangelogIsReadyForARelease(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	released := strings.Replace(string(text), "\n## [Unreleased]\n", "\n## [Unreleased]\n\n## [99.0.0] - 2026-11-21\n", 1)
	if _, err := notesOf(released, "99.0.0"); err != nil && !strings.Contains(err.Error(), "nothing below") {
		t.Error(err)
	}
}

func TestVersionOf(t *testing.T) {
	for tag, want := range map[string]string{
		"v1.2.3": "1.2.3", "v0.1.0": "0.1.0", "v1.0.0-rc.1": "1.0.0-rc.1",
		"1.2.3": "", "v1.2": "", "v01.2.3": "", "v1.2.3+build": "", "v1.2.3-": "", "v1.2.3 ": "", "v1.2.3;rm": "", "": "",
	} {
		if got, err := versionOf(tag); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q and %v, want %q", tag, got, err, want)
		}
	}
}
