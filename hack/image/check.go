package main

import (
	"bytes"
	"crypto/x509"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/merchant-operator/merchant-operator/hack/image/oci"
)

// checkArchive checks the images of an archive and says what they are.
func checkArchive(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	images, err := oci.Read(file)
	if err != nil {
		return err
	}
	if len(images) == 0 {
		return fmt.Errorf("%s has no image", path)
	}
	for _, image := range images {
		if err := check(image); err != nil {
			return fmt.Errorf("the image in %s for %s is not what it should be: %w", path, image.Platform, err)
		}
		fmt.Printf("==> %s for %s: a static binary and %d bytes of certificate authorities, as user %s, nothing else\n",
			path, image.Platform, len(content(image, rootsPath)), image.Config.User)
	}
	return nil
}

// check is what the image promises to those who run it.
func check(image oci.Image) error {
	var failures []error
	var files []string
	for _, file := range image.Files {
		if !file.Directory {
			files = append(files, file.Path)
		}
		if file.Mode&0o7002 != 0 && file.Link == "" {
			failures = append(failures, fmt.Errorf("%s has mode %o", file.Path, file.Mode))
		}
	}
	slices.Sort(files)
	if want := []string{rootsPath, binaryPath}; !slices.Equal(files, want) {
		failures = append(failures, fmt.Errorf("it holds %s; it should hold %s and nothing else", strings.Join(files, ", "), strings.Join(want, ", ")))
	}
	if image.Config.User != user {
		failures = append(failures, fmt.Errorf("it runs as %q, not %s", image.Config.User, user))
	}
	if !slices.Equal(image.Config.Entrypoint, []string{binaryPath}) {
		failures = append(failures, fmt.Errorf("it starts %q", image.Config.Entrypoint))
	}
	if !x509.NewCertPool().AppendCertsFromPEM(content(image, rootsPath)) {
		failures = append(failures, errors.New("it has no certificate authorities"))
	}
	return errors.Join(append(failures, checkBinary(content(image, binaryPath), image.Platform))...)
}

// checkBinary wants a static binary of the platform: there is no loader beside it.
func checkBinary(binary []byte, platform oci.Platform) error {
	program, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("its binary is none: %w", err)
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if program.Machine != machines[platform.Architecture] {
		return fmt.Errorf("its binary is for %s", program.Machine)
	}
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			return errors.New("its binary is not static")
		}
	}
	return nil
}

func content(image oci.Image, path string) []byte {
	for _, file := range image.Files {
		if file.Path == path {
			return file.Content
		}
	}
	return nil
}
