// Package examples runs the programs of examples/ against the whole product, seen through a proxy that loses answers.
package examples

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// example is the program in one language.
type example struct {
	name    string
	command []string
	listens bool // it serves webhooks; without that it verifies one at a time
}

var (
	shared   *fixture.Installation
	api      fixture.Replica
	examples []example
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := runTests(m); err != nil {
		log.Fatal(err)
	}
}

// runTests leaves the tests' own result to the testing package, which reports it when TestMain returns.
func runTests(m *testing.M) (err error) {
	// The programs wait for most of the time. One after the other they would take minutes.
	if err := flag.Set("test.parallel", "16"); err != nil {
		return err
	}
	for program, target := range map[string]string{"curl": "examples", "openssl": "examples", "python3": "examples", "node": "nodejs"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the examples need %s; run `make %s` to install it", program, target)
		}
	}
	directory, err := os.MkdirTemp("", "examples")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	compiled := filepath.Join(directory, "merchant")
	if err := repository.Build(compiled, "examples/go"); err != nil {
		return err
	}
	examples = []example{
		{"curl", []string{"bash", repository.Path("examples", "curl", "merchant.sh")}, false},
		{"Go", []string{compiled}, true},
		{"Node", []string{"node", repository.Path("examples", "node", "merchant.mjs")}, true},
		{"Python", []string{"python3", repository.Path("examples", "python", "merchant.py")}, true},
	}
	shared, err = fixture.Install()
	defer func() { err = errors.Join(err, shared.Close()) }()
	if err != nil {
		return err
	}
	if _, err := shared.StartOperator("operator", func(o *controllers.Options) { o.LeaderElect = false }); err != nil {
		return err
	}
	if api, err = shared.StartAPIServer("apiserver", func(*apiserver.Options) {}); err != nil {
		return err
	}
	if _, err := shared.StartDispatcher("dispatcher", func(*dispatcher.Options) {}); err != nil {
		return err
	}
	m.Run()
	return nil
}

// A developer reads an example whole before copying it. Reading them here also tells `go test` when they have changed.
func TestExamplesAreShort(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(repository.Path("examples", "*", "*"))
	if err != nil || len(files) < len(examples) {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range files {
		if filepath.Ext(file) == "" { // the directory of compiled Python
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(text), "\n"); lines > 150 {
			t.Errorf("%s has %d lines", file, lines)
		}
	}
}
