package browsertest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	_ "embed" // axe-core
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// axe-core 4.14.1 (MPL-2.0, see axe/LICENSE), as `npm pack axe-core@4.14.1` has it in package/axe.min.js.
//
//go:embed axe/axe.min.js.gz
var axeArchive []byte

// axeSHA512 is of package/axe.min.js.
const axeSHA512 = "e63e659f9806d7ae5bd40899043b0871a5062c5442b01b3f1a3edf5eaf50bf5c3a7104a72463293b4ad1b77c661a0d4e40e850dec89de9d6ece70a8c13a9af17"

var axe = sync.OnceValues(func() (string, error) { return unpackAxe(axeArchive) })

func unpackAxe(archive []byte) (string, error) {
	reader, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return "", fmt.Errorf("read axe-core: %w", err)
	}
	source, err := io.ReadAll(reader)
	if err != nil {
		return "", fmt.Errorf("read axe-core: %w", err)
	}
	if sum := sha512.Sum512(source); hex.EncodeToString(sum[:]) != axeSHA512 {
		return "", fmt.Errorf("axe-core is not the file that axeSHA512 names: it has %x", sum)
	}
	return string(source), nil
}

// Violations has the accessibility rules that the page breaks, in words; all rules of axe-core but the experimental ones.
func (p *Page) Violations() []string {
	p.t.Helper()
	source, err := axe()
	if err != nil {
		p.t.Fatal(err)
	}
	if p.noJavaScript { // but axe-core needs it; the page's own scripts were not loaded
		call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: false})
		defer call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	}
	if !Eval[bool](p, "'axe' in globalThis") {
		p.do(chromedp.Evaluate[chromedp.Void](source))
	}
	var found []struct {
		ID    string `json:"id"`
		Help  string `json:"help"`
		Nodes []struct {
			HTML    string `json:"html"`
			Summary string `json:"failureSummary"`
		} `json:"nodes"`
	}
	result := Eval[[]byte](p, "axe.run({resultTypes: ['violations']}).then(result => result.violations)")
	if err := json.Unmarshal(result, &found); err != nil {
		p.t.Fatal(err)
	}
	var violations []string
	for _, rule := range found {
		for _, node := range rule.Nodes {
			violations = append(violations, strings.Join([]string{rule.ID + ": " + rule.Help, node.HTML, node.Summary}, "\n  "))
		}
	}
	return violations
}
