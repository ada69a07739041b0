// Command oidc is an OpenID provider for `make run` and tests: ory/fosite, users of a file, and a login page. It keeps
// everything in memory.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "oidc:", err)
		os.Exit(1)
	}
}

// user is one person of the users file. Subject, Email, Name and Groups become claims.
type user struct {
	Username string   `json:"username"`
	Password string   `json:"password"`
	Email    string   `json:"email"`
	Name     string   `json:"name"`
	Groups   []string `json:"groups"`
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("oidc", flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:8085", "listen address")
	issuer := flags.String("issuer-url", "", "URL of the provider for others; empty: http://ADDRESS")
	certificates := flags.String("cert-dir", "", "directory with tls.crt and tls.key; empty: serve HTTP")
	file := flags.String("users", "", `file with the users: [{"username", "password", "email", "name", "groups"}]`)
	client := client{}
	flags.StringVar(&client.id, "client-id", "console", "id of the client")
	flags.StringVar(&client.secret, "client-secret", "", "secret of the client")
	redirects := flags.String("redirect-urls", "", "redirect URLs of the client, comma-separated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *file == "" || client.secret == "" || *redirects == "" {
		return errors.New("set --users, --client-secret and --redirect-urls")
	}
	client.redirects = strings.Split(*redirects, ",")
	text, err := os.ReadFile(*file)
	if err != nil {
		return fmt.Errorf("read --users: %w", err)
	}
	var users []user
	if err := json.Unmarshal(text, &users); err != nil {
		return fmt.Errorf("read --users: %w", err)
	}
	provider, err := newProvider(cmp.Or(*issuer, "http://"+*address), client, users)
	if err != nil {
		return err
	}
	const readTimeout = 10 * time.Second
	server := &http.Server{Addr: *address, Handler: provider.handler(), ReadHeaderTimeout: readTimeout}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	serve := server.ListenAndServe
	if *certificates != "" {
		serve = func() error {
			return server.ListenAndServeTLS(filepath.Join(*certificates, "tls.crt"), filepath.Join(*certificates, "tls.key"))
		}
	}
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
