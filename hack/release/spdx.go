package main

import "strings"

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
