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
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

const (
	home       = "https://github.com/merchant-operator/merchant-operator"
	rootsOwner = "golang.org/x/crypto/x509roots/fallback"
)

// The part of SPDX 2.3 that is needed to say what a Go program is made of.
type (
	document struct {
		SPDXVersion       string         `json:"spdxVersion"`
		DataLicense       string         `json:"dataLicense"`
		SPDXID            string         `json:"SPDXID"`
		Name              string         `json:"name"`
		DocumentNamespace string         `json:"documentNamespace"`
		CreationInfo      creationInfo   `json:"creationInfo"`
		Packages          []spdxPackage  `json:"packages"`
		Relationships     []relationship `json:"relationships"`
	}
	creationInfo struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name             string        `json:"name"`
		SPDXID           string        `json:"SPDXID"`
		VersionInfo      string        `json:"versionInfo,omitempty"`
		Purpose          string        `json:"primaryPackagePurpose"`
		DownloadLocation string        `json:"downloadLocation"`
		FilesAnalyzed    bool          `json:"filesAnalyzed"`
		LicenseConcluded string        `json:"licenseConcluded"`
		LicenseDeclared  string        `json:"licenseDeclared"`
		CopyrightText    string        `json:"copyrightText"`
		Checksums        []checksum    `json:"checksums,omitempty"`
		ExternalRefs     []externalRef `json:"externalRefs,omitempty"`
		Comment          string        `json:"comment,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	externalRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

// What SPDX writes where nothing is claimed.
const noAssertion = "NOASSERTION"

// newPackage is a package about which no more is known than its name.
func newPackage(id, name, version, purpose string) spdxPackage {
	return spdxPackage{
		Name: name, SPDXID: "SPDXRef-" + id, VersionInfo: version, Purpose: purpose,
		DownloadLocation: noAssertion, LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, CopyrightText: noAssertion,
	}
}

// goPackage is a Go module. Scanners look vulnerabilities up by its package URL.
func goPackage(id, path, version string) spdxPackage {
	one := newPackage(id, path, version, "LIBRARY")
	one.ExternalRefs = []externalRef{{
		Category: "PACKAGE-MANAGER", Type: "purl",
		Locator: "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B"),
	}}
	return one
}

// writeSBOMs says what is in an image, in a file for each of its platforms: sbom-linux-amd64.spdx.json. The image is one
// Go program, which carries the list of its modules, and one file of certificates, so that nothing has to be guessed.
func writeSBOMs(ctx context.Context, version, archive, directory string) error {
	images, err := readArchive(archive)
	if err != nil {
		return err
	}
	for _, image := range images {
		platform := image.config.Platform()
		described, err := describe(version, commitTime(ctx), image)
		if err != nil {
			return fmt.Errorf("the image for %s: %w", platform, err)
		}
		text, err := json.MarshalIndent(described, "", "  ")
		if err != nil {
			return err
		}
		name := fmt.Sprintf("sbom-%s-%s.spdx.json", platform.OS, platform.Architecture)
		if err := os.WriteFile(filepath.Join(directory, name), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// describe lists the image, the files in it, and the modules that the program is built of.
func describe(version string, when time.Time, image content) (*document, error) {
	container := newPackage("image", "merchant-operator", version, "CONTAINER")
	out := &document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT",
		Name:          fmt.Sprintf("merchant-operator %s for %s", version, image.config.Platform()),
		Packages:      []spdxPackage{container},
		CreationInfo:  creationInfo{Created: when.UTC().Format(time.RFC3339), Creators: []string{"Tool: hack/image"}},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", container.SPDXID}},
	}
	var problems []error
	for _, one := range image.files {
		if one.path == rootsPath {
			out.add(container, "CONTAINS", rootsPackage(one))
		} else {
			problems = append(problems, out.addProgram(container, version, one))
		}
	}
	return out, errors.Join(problems...)
}

// rootsPackage has the version of the module that this tool took the certificates from.
func rootsPackage(one file) spdxPackage {
	out := goPackage("roots", rootsOwner, "")
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == rootsOwner {
				out = goPackage("roots", rootsOwner, module.Version)
			}
		}
	}
	out.Purpose, out.Checksums = "FILE", sumOf(one.content)
	out.Comment = one.path + ": the certificate authorities that Mozilla trusts"
	return out
}

func (d *document) addProgram(container spdxPackage, version string, one file) error {
	info, err := buildinfo.Read(bytes.NewReader(one.content))
	if err != nil {
		return fmt.Errorf("%s is no Go program: %w", one.path, err)
	}
	program := newPackage("program", info.Main.Path, version, "APPLICATION")
	program.DownloadLocation = "git+" + home + "@v" + version
	program.LicenseDeclared = "Apache-2.0"
	program.Checksums = sumOf(one.content)
	program.Comment = one.path
	d.DocumentNamespace = home + "/releases/v" + version + "/spdx/" + program.Checksums[0].Value
	d.add(container, "CONTAINS", program)

	d.add(program, "DEPENDS_ON", goPackage("stdlib", "stdlib", strings.TrimPrefix(info.GoVersion, "go")))
	for i, module := range info.Deps {
		comment := "go.sum: " + module.Sum
		if module.Replace != nil {
			comment = "instead of " + module.Path
			module = module.Replace
		}
		dependency := goPackage(fmt.Sprintf("module-%d", i+1), module.Path, module.Version)
		dependency.Comment = comment
		d.add(program, "DEPENDS_ON", dependency)
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
