//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/hack/image/oci"
)

// pack writes an image of programs that are installed here, with the libraries they need: for a cluster that cannot
// pull any image. The first program is what a container runs.
func pack(ctx context.Context, name, archive string, programs []string) (err error) {
	image := oci.Image{
		Platform: oci.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Created:  time.Unix(0, 0),
		Config:   oci.Config{User: "65532:65532", Env: []string{"PATH=/usr/bin"}, WorkingDir: "/"},
	}
	packed := map[string]bool{}
	add := func(from, to string) error {
		if packed[to] {
			return nil
		}
		packed[to] = true
		content, err := os.ReadFile(from) // of what a link points to
		if err != nil {
			return err
		}
		image.Files = append(image.Files, oci.File{Path: to, Mode: 0o755, Content: content})
		return nil
	}
	for _, program := range programs {
		from, err := exec.LookPath(program)
		if err != nil {
			return err
		}
		to := "/usr/bin/" + filepath.Base(program)
		if image.Config.Entrypoint == nil {
			image.Config.Entrypoint = []string{to}
		}
		if err := add(from, to); err != nil {
			return err
		}
		for _, library := range libraries(ctx, from) {
			if err := add(library, library); err != nil {
				return err
			}
		}
	}
	file, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := oci.Write(file, name, []oci.Image{image}); err != nil {
		return err
	}
	say("%s holds %s", archive, name)
	return nil
}

// libraries are the absolute paths in what the dynamic loader says, such as
// "libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f…)". A static program has none, at which ldd fails.
func libraries(ctx context.Context, program string) []string {
	said, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil
	}
	var found []string
	for word := range strings.FieldsSeq(string(said)) {
		if strings.HasPrefix(word, "/") {
			found = append(found, word)
		}
	}
	return found
}
