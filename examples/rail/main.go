// A payment rail: the connector between a payment network and merchant-operator, here a bank with one page. It is an example to read: docs/rail.md
// says why each step is as it is. It needs Go and no modules, moves no money, and asks nobody who they are.
//
//	api.go      the requests to the internal port, and what to do without an answer
//	bank.go     read, pay, report, refund
//	journal.go  what survives a crash
//	page.go     what the payer sees
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	stop, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	if err := run(stop, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		release()
		log.Fatal(err) //nolint:gocritic // it has been released
	}
}

// run serves until stop ends.
func run(stop context.Context, args []string) error {
	flags := flag.NewFlagSet("rail", flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:8086", "host:port to listen on; payers come to /pay/SESSION")
	internalURL := flags.String("internal-api", "http://merchant-operator-apiserver-internal.merchant-operator-system:8081", "URL of the internal port")
	tokenFile := flags.String("token-file", "/var/run/secrets/merchant-operator/token", "file with the token of this program's service account")
	journalFile := flags.String("journal", "payments.jsonl", "file that remembers payments")
	returnURL := flags.String("return-url", "", "address of the payer's page, with {sessionId}; empty: the bank's page links to none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	journal, err := openJournal(*journalFile)
	if err != nil {
		return err
	}
	b := &bank{
		// A report may wait for replicas of Redis, so give it time.
		api: &api{
			url: strings.TrimSuffix(*internalURL, "/"), tokenFile: *tokenFile, client: &http.Client{Timeout: 10 * time.Second},
		},
		journal: journal,
	}
	b.resume(stop)
	const patience = 30 * time.Second
	server := &http.Server{Addr: *address, Handler: b.routes(*returnURL), ReadTimeout: patience, WriteTimeout: patience}
	go func() {
		<-stop.Done()
		_ = server.Close()
	}()
	log.Printf("paying at http://%s/pay/SESSION", *address)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
