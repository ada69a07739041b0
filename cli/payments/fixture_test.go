package payments

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// execute runs a command of this room as cli does, without a cluster.
func execute(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	streams.Out, streams.ErrOut = terminal.Escape(streams.Out), terminal.Escape(streams.ErrOut)
	root := &cobra.Command{Use: "kubectl-merchant", SilenceErrors: true, SilenceUsage: true}
	access := cluster.NewAccess(root.PersistentFlags(), "v1.2.3", streams.ErrOut)
	root.AddCommand(Command(access, streams, time.Now), ListenCommand(access, streams, time.Now)) //nolint:contextcheck // cobra passes ctx to the command that runs
	root.SetArgs(append(args, "--kubeconfig=/nowhere"))
	if err := root.ExecuteContext(ctx); err != nil {
		return terminal.PrintError(streams.ErrOut, err, cluster.DescribeError)
	}
	return terminal.ExitDone
}

// result is what a command did.
type result struct {
	out, problems string
	code          int
}

// run runs a command line.
func run(t *testing.T, commandLine string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Patience)
	defer cancel()
	var out, problems bytes.Buffer
	code := execute(ctx, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &problems}, strings.Fields(commandLine))
	return result{out.String(), problems.String(), code}
}

// want fails the test unless the command ended with the code, and its output has these words.
func (r result) want(t *testing.T, code int, words ...string) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.problems)
	}
	for _, word := range words {
		if !strings.Contains(r.out+r.problems, word) {
			t.Errorf("no %q in\nstdout: %s\nstderr: %s", word, r.out, r.problems)
		}
	}
	return r
}

// fakeKey is for fake APIs.
const fakeKey = "a-key-that-somebody-brings-along-0123456789"

// abort answers nothing.
func abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// failing answers with a status, a body, and headers in pairs.
func failing(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}
