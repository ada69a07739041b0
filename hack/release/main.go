// Command release makes what a release is made of, beside the image: its notes, its chart and what says what is in
// the image. hack/release/assemble.sh calls it for all of them, and hack/release/publish.sh sends them out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
)

const usage = `Makes the parts of a release, from the root of the repository:

  go run ./hack/release version TAG                      print the version of a tag: 1.2.3 for v1.2.3
  go run ./hack/release notes   TAG                      print what CHANGELOG.md says of it
  go run ./hack/release chart   TAG DIRECTORY            package the chart as that version
  go run ./hack/release sbom    TAG ARCHIVE DIRECTORY    write an SPDX document for each platform of an image
`

var errUsage = errors.New("wrong arguments")

func main() {
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	if err := run(context.Background(), flag.Args()); err != nil {
		if errors.Is(err, errUsage) {
			flag.Usage()
			os.Exit(2)
		}
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	version, err := versionOf(args[1])
	if err != nil {
		return err
	}
	switch rest := args[2:]; {
	case args[0] == "version" && len(rest) == 0:
		fmt.Println(version)
		return nil
	case args[0] == "notes" && len(rest) == 0:
		return printNotes(version)
	case args[0] == "chart" && len(rest) == 1:
		when, err := commitTime(ctx)
		if err != nil {
			return err
		}
		_, err = packageChart("charts/merchant-operator", version, rest[0], when)
		return err
	case args[0] == "sbom" && len(rest) == 2:
		return writeSBOMs(ctx, version, rest[0], rest[1])
	default:
		return errUsage
	}
}

func printNotes(version string) error {
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	notes, err := notesOf(string(changelog), version)
	if err != nil {
		return fmt.Errorf("CHANGELOG.md: %w", err)
	}
	fmt.Println(notes)
	return nil
}
