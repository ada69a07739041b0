// Command image is `make image`: it makes the product's container image and checks what is in it.
//
// With docker the Dockerfile is built, and the image is loaded under its tag. Where docker does not answer, the same
// image is put together here, out of a binary that Go compiles for each platform and the certificate authorities that
// Mozilla trusts: no daemon, no registry and no root are needed for files on an empty base. Either way there is an
// archive in the end, and nobody gets one that has a shell in it, or runs as root.
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

	"github.com/merchant-operator/merchant-operator/hack/image/oci"
)

const usage = `Makes the container image, or checks one: make image, or from the root of the repository

  go run ./hack/image [flags]
  go run ./hack/image check ARCHIVE

`

type options struct {
	name, version, output, builder string
	platforms                      []oci.Platform
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
	if len(args) == 2 && args[0] == "check" {
		return checkArchive(args[1])
	}
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage); flags.PrintDefaults() }
	flags.StringVar(&o.name, "name", "merchant-operator:devel", "name and tag of the image")
	flags.StringVar(&o.version, "version", "devel", "what `merchant-operator version` prints in it")
	flags.StringVar(&o.output, "output", "bin/image.tar", "archive to write")
	flags.StringVar(&o.builder, "builder", "auto", "docker, buildah, none (compile and assemble here), or auto: docker if it answers, else none")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "platforms, comma-separated; docker loads the one it runs on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for name := range strings.SplitSeq(*platforms, ",") {
		system, architecture, ok := strings.Cut(name, "/")
		if !ok {
			return fmt.Errorf("-platforms: %q is not like linux/amd64", name)
		}
		o.platforms = append(o.platforms, oci.Platform{OS: system, Architecture: architecture})
	}
	if err := build(ctx, o); err != nil {
		return err
	}
	return checkArchive(o.output)
}

func build(ctx context.Context, o options) error {
	if o.builder == "auto" {
		o.builder = "none"
		if dockerAnswers(ctx) {
			o.builder = "docker"
		}
	}
	switch o.builder {
	case "docker":
		return buildWithDocker(ctx, o)
	case "buildah":
		return buildWithBuildah(ctx, o)
	case "none":
		return assemble(ctx, o)
	default:
		return fmt.Errorf("-builder: there is no %q", o.builder)
	}
}
