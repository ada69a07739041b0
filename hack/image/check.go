package main

import (
	"bytes"
	"crypto/x509"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// checkArchive checks the images of an archive, and prints what they are.
func checkArchive(path string) error {
	images, err := readArchive(path)
	if err != nil {
		return err
	}
	if len(images) == 0 {
		return fmt.Errorf("%s has no image", path)
	}
	for _, image := range images {
		if err := image.check(); err != nil {
			return fmt.Errorf("%s for %s: %w", path, image.config.Platform(), err)
		}
		fmt.Printf("==> %s for %s: a static binary and %d bytes of certificate authorities, as user %s, nothing else\n",
			path, image.config.Platform(), len(image.files[rootsPath].content), image.config.Config.User)
	}
	return nil
}

// check compares the image with what docs/security.md promises of it.
func (c content) check() error {
	var problems []error
	for _, one := range c.files {
		if one.mode&0o7002 != 0 {
			problems = append(problems, fmt.Errorf("%s has mode %o", one.path, one.mode))
		}
	}
	if paths := slices.Sorted(maps.Keys(c.files)); !slices.Equal(paths, []string{rootsPath, binaryPath}) {
		problems = append(problems, fmt.Errorf("it holds %s; want only %s and %s", paths, rootsPath, binaryPath))
	}
	if got := c.config.Config.User; got != user {
		problems = append(problems, fmt.Errorf("it runs as user %q, not %s", got, user))
	}
	if got := c.config.Config.Entrypoint; !slices.Equal(got, []string{binaryPath}) {
		problems = append(problems, fmt.Errorf("its entrypoint is %q", got))
	}
	if !x509.NewCertPool().AppendCertsFromPEM(c.files[rootsPath].content) {
		problems = append(problems, errors.New("it has no certificate authorities"))
	}
	return errors.Join(append(problems, checkBinary(c.files[binaryPath].content, c.config.Architecture))...)
}

// checkBinary wants a static binary, because the image has no loader.
func checkBinary(binary []byte, architecture string) error {
	program, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("its binary is not an ELF file: %w", err)
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if program.Machine != machines[architecture] {
		return fmt.Errorf("its binary is for %s", program.Machine)
	}
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			return errors.New("its binary is not static")
		}
	}
	return nil
}

// unpackPrograms writes the program of each image of an archive into a directory, such as merchant-operator-linux-amd64.
func unpackPrograms(archive, directory string) error {
	images, err := readArchive(archive)
	if err != nil {
		return err
	}
	for _, image := range images {
		program := filepath.Base(binaryPath) + "-" + image.config.OS + "-" + image.config.Architecture
		if err := os.WriteFile(filepath.Join(directory, program), image.files[binaryPath].content, 0o755); err != nil {
			return err
		}
	}
	return nil
}
