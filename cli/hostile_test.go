package cli

import (
	"io"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// hostile are texts that a terminal obeys, or that show another text than they are.
var hostile = []string{
	"a\x1b]52;c;cm0gLXJmIC8=\x07b", "a\x1b[2Jb", "a\u009b2Jb", "a\u0085b", "a\rb", "a\bb", "a\x7fb", "a\u202eb", "a\u2066b", "a\u200fb", "a\u2028b", "a\ufeffb",
}

// escaped is a text with everything escaped that a terminal obeys.
func escaped(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	if _, err := io.WriteString(terminal.Escape(&out), text); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Errors, tables, advice and reports of objects with hostile texts have nothing that a terminal obeys.
func TestCommands_Hostile(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	key, _ := n.ApiKey("till", "acme")
	var message strings.Builder
	for _, text := range hostile {
		message.WriteString(text)
	}
	n.Eventually("the forged status is in place", func() bool {
		if err := installation.Client.Get(t.Context(), client.ObjectKeyFromObject(key), key); err != nil {
			t.Fatal(err)
		}
		for i := range key.Status.Conditions {
			key.Status.Conditions[i].Message, key.Status.Conditions[i].Reason = message.String()+"\n  forged advice", "Forged"
		}
		return installation.Client.Status().Update(t.Context(), key) == nil
	})
	for _, args := range []string{"status", "status acme", "status acme -o yaml", "status acme -o json", "report", "keys list", "status \x1b]52;c;x\x07"} {
		got := run(t, n.Namespace, args)
		if text := got.out + got.problems; escaped(t, text) != text {
			t.Errorf("%q prints %q", args, text)
		}
		if strings.Contains(got.out, "\n  forged advice") && !strings.Contains(args, "-o") && args != "report" {
			t.Errorf("%q has a forged line: %s", args, got.out)
		}
	}
}
