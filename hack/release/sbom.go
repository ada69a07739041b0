package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/hack/image/oci"
)

const (
	home       = "https://github.com/merchant-operator/merchant-operator"
	rootsOwner = "golang.org/x/crypto/x509roots/fallback"
)

// writeSBOMs says what is in an image, in a file for each of its platforms: sbom-linux-amd64.spdx.json. The image is one
// Go program, which carries the list of its own modules, and one file of certificates, so that nothing has to be
// guessed by looking for traces of packages.
func writeSBOMs(ctx context.Context, version, archive, directory string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	images, err := oci.Read(file)
	if err != nil {
		return err
	}
	rootsVersion, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", rootsOwner).Output()
	if err != nil {
		return fmt.Errorf("find the version of %s: %w", rootsOwner, err)
	}
	when, err := commitTime(ctx)
	if err != nil {
		return err
	}
	for _, image := range images {
		described, err := describe(version, when, strings.TrimSpace(string(rootsVersion)), image)
		if err != nil {
			return fmt.Errorf("the image for %s: %w", image.Platform, err)
		}
		content, err := json.MarshalIndent(described, "", "  ")
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		name := fmt.Sprintf("sbom-%s-%s.spdx.json", image.Platform.OS, image.Platform.Architecture)
		if err := os.WriteFile(filepath.Join(directory, name), append(content, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// describe lists the image, the files in it, and the modules that the program is built of.
func describe(version string, when time.Time, rootsVersion string, image oci.Image) (*document, error) {
	container := newPackage("image", "merchant-operator", version, "CONTAINER")
	out := &document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT",
		Name:          fmt.Sprintf("merchant-operator %s for %s", version, image.Platform),
		Packages:      []spdxPackage{container},
		CreationInfo:  creationInfo{Created: when.UTC().Format(time.RFC3339), Creators: []string{"Tool: hack/release"}},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", container.SPDXID}},
	}
	var problems []error
	for _, file := range image.Files {
		switch {
		case file.Directory:
		case strings.HasSuffix(file.Path, ".crt"):
			roots := goPackage("roots", rootsOwner, rootsVersion)
			roots.Purpose, roots.Checksums = "FILE", sumOf(file.Content)
			roots.Comment = file.Path + ": the certificate authorities that Mozilla trusts"
			out.add(container, "CONTAINS", roots)
		default:
			problems = append(problems, out.addProgram(container, version, file))
		}
	}
	return out, errors.Join(problems...)
}

func (d *document) addProgram(container spdxPackage, version string, file oci.File) error {
	info, err := buildinfo.Read(bytes.NewReader(file.Content))
	if err != nil {
		return fmt.Errorf("%s is no Go program: %w", file.Path, err)
	}
	program := newPackage("program", info.Main.Path, version, "APPLICATION")
	program.DownloadLocation = "git+" + home + "@v" + version
	program.LicenseDeclared = "Apache-2.0"
	program.Checksums = sumOf(file.Content)
	program.Comment = file.Path
	d.DocumentNamespace = home + "/releases/v" + version + "/spdx/" + program.Checksums[0].Value
	d.add(container, "CONTAINS", program)

	d.add(program, "DEPENDS_ON", goPackage("stdlib", "stdlib", strings.TrimPrefix(info.GoVersion, "go")))
	for i, module := range info.Deps {
		comment := "go.sum: " + module.Sum
		if module.Replace != nil {
			comment = "instead of " + module.Path
			module = module.Replace
		}
		one := goPackage(fmt.Sprintf("module-%d", i+1), module.Path, module.Version)
		one.Comment = comment
		d.add(program, "DEPENDS_ON", one)
	}
	return nil
}

func (d *document) add(to spdxPackage, relation string, one spdxPackage) {
	d.Packages = append(d.Packages, one)
	d.Relationships = append(d.Relationships, relationship{to.SPDXID, relation, one.SPDXID})
}

func sumOf(content []byte) []checksum {
	sum := sha256.Sum256(content)
	return []checksum{{Algorithm: "SHA256", Value: hex.EncodeToString(sum[:])}}
}
