package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const (
	home        = "https://github.com/merchant-operator/merchant-operator"
	rootsModule = "golang.org/x/crypto/x509roots/fallback"
	noAssertion = "NOASSERTION" // SPDX for "nothing is claimed"
)

// writeSBOMs describes the images of an archive, in one file for each platform: sbom-linux-amd64.spdx.json. An image is one Go
// program, which contains the list of its modules, and one file of certificates, so nothing is guessed.
func writeSBOMs(ctx context.Context, version, archive, directory string) error {
	images, err := readArchive(archive)
	if err != nil {
		return err
	}
	for _, image := range images {
		platform := image.config.Platform()
		document, err := describe(version, commitTime(ctx), image)
		if err != nil {
			return fmt.Errorf("the image for %s: %w", platform, err)
		}
		text, err := json.MarshalIndent(document, "", "  ")
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

// describe lists the image, its two files, and the modules that the program is built from.
func describe(version string, when time.Time, image content) (*spdx.Document, error) {
	binary := image.files[binaryPath].content
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, fmt.Errorf("%s is not a Go program: %w", binaryPath, err)
	}
	out := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      fmt.Sprintf("merchant-operator %s for %s", version, image.config.Platform()),
		DocumentNamespace: home + "/releases/v" + version + "/spdx/" + checksum(binary)[0].Value,
		CreationInfo: &spdx.CreationInfo{
			Created: when.UTC().Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: "hack/image"}},
		},
	}
	container := newPackage("image", "merchant-operator", version, "CONTAINER")
	add(out, out.SPDXIdentifier, common.TypeRelationshipDescribe, container)

	roots := goPackage("roots", rootsModule, rootsVersion())
	roots.PrimaryPackagePurpose, roots.PackageChecksums = "FILE", checksum(image.files[rootsPath].content)
	roots.PackageComment = rootsPath + ": the certificate authorities that Mozilla trusts"
	add(out, container.PackageSPDXIdentifier, common.TypeRelationshipContains, roots)

	program := newPackage("program", info.Main.Path, version, "APPLICATION")
	program.PackageDownloadLocation = "git+" + home + "@v" + version
	program.PackageLicenseDeclared = "Apache-2.0"
	program.PackageChecksums, program.PackageComment = checksum(binary), binaryPath
	add(out, container.PackageSPDXIdentifier, common.TypeRelationshipContains, program)

	add(out, program.PackageSPDXIdentifier, common.TypeRelationshipDependsOn,
		goPackage("stdlib", "stdlib", strings.TrimPrefix(info.GoVersion, "go")))
	for i, module := range info.Deps {
		comment := "go.sum: " + module.Sum
		if module.Replace != nil {
			comment = "instead of " + module.Path
			module = module.Replace
		}
		dependency := goPackage(fmt.Sprintf("module-%d", i+1), module.Path, module.Version)
		dependency.PackageComment = comment
		add(out, program.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, dependency)
	}
	return out, nil
}

func add(to *spdx.Document, from common.ElementID, relationship string, one *spdx.Package) {
	to.Packages = append(to.Packages, one)
	to.Relationships = append(to.Relationships, &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, Relationship: relationship,
		RefB: common.DocElementID{ElementRefID: one.PackageSPDXIdentifier},
	})
}

func newPackage(id common.ElementID, name, version, purpose string) *spdx.Package {
	return &spdx.Package{
		PackageName: name, PackageSPDXIdentifier: id, PackageVersion: version, PrimaryPackagePurpose: purpose,
		PackageDownloadLocation: noAssertion, PackageLicenseConcluded: noAssertion,
		PackageLicenseDeclared: noAssertion, PackageCopyrightText: noAssertion,
	}
}

// goPackage is a Go module. Scanners find vulnerabilities by its package URL.
func goPackage(id, path, version string) *spdx.Package {
	one := newPackage(common.ElementID(id), path, version, "LIBRARY")
	one.PackageExternalReferences = []*spdx.PackageExternalReference{{
		Category: common.CategoryPackageManager, RefType: "purl",
		Locator: "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B"),
	}}
	return one
}

// rootsVersion is that of the module from which this tool took the certificates.
func rootsVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == rootsModule {
				return module.Version
			}
		}
	}
	return ""
}

func checksum(content []byte) []common.Checksum {
	sum := sha256.Sum256(content)
	return []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum[:])}}
}
