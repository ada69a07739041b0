// Command receiver receives webhook events and prints one line for each. It is the example of docs/webhooks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
)

const usage = `Receives webhook events: go run ./hack/receiver --secret-file FILE

It accepts events at any path. GET /events lists the last 1000 as JSON.

  --address host:port   address to listen on (default 127.0.0.1:8090)
  --secret-file FILE    file with a signing secret (whsec_...); repeat the flag for a second secret
  --accept-unverified   accept events without a valid signature too, and mark them; only for trying out
  --status CODE         status of the answer to each event (default 204), to try what a failing endpoint causes

Without --secret-file the secret is $WEBHOOK_SECRET.
`

func main() {
	stop, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(stop, os.Args[1:], os.Stdout)
	release()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "receiver: %v\n", err)
		os.Exit(1)
	}
}

// run serves until stop ends.
func run(stop context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("receiver", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	address := flags.String("address", "127.0.0.1:8090", "")
	acceptUnverified := flags.Bool("accept-unverified", false, "")
	status := flags.Int("status", http.StatusNoContent, "")
	secrets := []string{}
	flags.Func("secret-file", "", func(path string) error {
		text, err := os.ReadFile(path)
		secrets = append(secrets, strings.TrimSpace(string(text)))
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0))
	}
	if secret := os.Getenv("WEBHOOK_SECRET"); secret != "" && len(secrets) == 0 {
		secrets = append(secrets, secret)
	}
	if *status < 200 || *status > 599 {
		return fmt.Errorf("--status is %d; want 200 to 599", *status)
	}
	receiver, err := inbox.New(inbox.Options{
		Secrets: secrets, AcceptUnverified: *acceptUnverified, Log: out,
		Status: func(*http.Request) int { return *status },
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(stop, "tcp", *address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Fprintf(out, "receiving on http://%s/, listing on http://%[1]s/events\n", listener.Addr())
	return serve(stop, listener, receiver)
}

func serve(stop context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-stop.Done():
		return server.Close()
	}
}
