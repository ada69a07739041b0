// Command image is `make image`: it makes the container image of merchant-operator, and checks its contents.
//
// The image is made of a binary that Go compiles for each platform and the certificate authorities that Mozilla trusts. That
// needs no daemon, no registry (ko pulls its base image from one) and no root. The command writes an archive, and fails if the
// image holds anything else or runs as root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const usage = `Makes container images, and checks them. Run it in the root of the repository:

  go -C hack/image build -o "$PWD/bin/image" .
  bin/image [flags]                                    make the image of merchant-operator
  bin/image check ARCHIVE                              check it
  bin/image unpack ARCHIVE DIRECTORY                   write the program of each of its platforms
  bin/image sbom VERSION ARCHIVE DIRECTORY             write an SPDX document for each of its platforms
  bin/image pack USER NAME:TAG ARCHIVE PROGRAM ...     make an image of programs on this machine

`

type options struct {
	name, version, output string
	platforms             []v1.Platform
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "check":
		return checkArchive(args[1])
	case len(args) == 3 && args[0] == "unpack":
		return unpackPrograms(args[1], args[2])
	case len(args) == 4 && args[0] == "sbom":
		return writeSBOMs(ctx, args[1], args[2], args[3])
	case len(args) >= 5 && args[0] == "pack":
		return pack(ctx, args[1], args[2], args[3], args[4:])
	}
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage); flags.PrintDefaults() }
	flags.StringVar(&o.name, "name", "merchant-operator:devel", "name and tag of the image")
	flags.StringVar(&o.version, "version", "devel", "version that `merchant-operator version` prints")
	flags.StringVar(&o.output, "output", "bin/image.tar", "archive to write")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "platforms, comma-separated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected arguments %q; see --help", flags.Args())
	}
	for name := range strings.SplitSeq(*platforms, ",") {
		platform, err := v1.ParsePlatform(name)
		if err != nil || platform.Architecture == "" {
			return fmt.Errorf("-platforms: %q is not a platform such as linux/amd64", name)
		}
		o.platforms = append(o.platforms, *platform)
	}
	if err := build(ctx, o); err != nil {
		return err
	}
	return checkArchive(o.output)
}
