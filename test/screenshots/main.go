// Command screenshots is a part of `make screenshots`: it writes the pictures of the payer's page in README and docs/page.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/payer/page"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
)

func main() {
	directory := flag.String("dir", "docs/images", "directory to write to")
	flag.Parse()
	if err := run(*directory); err != nil {
		log.Fatal(err)
	}
}

// A session that never was, so that each run writes the same pictures.
const sessionID = "ps_abcdefgh2345T2xV9bLrYc8WdNeHq7"

func run(directory string) error {
	pages, err := page.New()
	if err != nil {
		return err
	}
	server := httptest.NewServer(handler(pages))
	defer server.Close()
	for _, shot := range []struct {
		name, state   string
		width, height int
		dark          bool
	}{
		{"payer-page", "PENDING", phoneWidth, phoneHeight, false},
		{"payer-page-desktop", "PENDING", 1280, 800, false},
		{"payer-page-paid", "COMPLETED", phoneWidth, phoneHeight, true},
	} {
		picture, err := screenshot(server.URL+"/"+shot.state, shot.width, shot.height, shot.dark)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(directory, shot.name+".png"), picture, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// A small phone.
const phoneWidth, phoneHeight = 390, 780

// handler serves the page of a session in the state that is the path, without its script: the page shows what is not live.
func handler(pages *page.Pages) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path, isAsset := strings.CutPrefix(r.URL.Path, page.AssetPrefix); isAsset {
			version, file, _ := strings.Cut(path, "/")
			asset, _, _ := pages.Asset(version, file, r.URL.Query().Get("accent"))
			w.Header().Set("Content-Type", asset.ContentType)
			_, _ = w.Write(asset.Content)
			return
		}
		id, err := session.ParseID(sessionID)
		if err != nil {
			panic(err)
		}
		payload := "pay://qr/" + sessionID
		rendered, err := pages.Payment("en", &page.Payment{
			ID: id, MerchantName: "Acme Coffee", AmountCents: 1250, Currency: "EUR", Status: session.Status(r.URL.Path[1:]),
			ExpiresIn: 14*time.Minute + 32*time.Second, Payload: payload, QRText: payload,
			Receipt:     page.Receipt{TaxCents: 110, TipCents: 100, PaidAt: time.Date(2026, 11, 21, 10, 15, 0, 0, time.UTC), Order: "1001"},
			AccentColor: "#0b6e4f", ReturnURL: "https://shop.example/thanks",
		})
		if err != nil {
			panic(err)
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "script-src 'none'")
		_, _ = w.Write(rendered)
	})
}

// screenshot opens a page in a window of that size.
func screenshot(url string, width, height int, dark bool) ([]byte, error) {
	browser, err := browsertest.Executable()
	if err != nil {
		return nil, err
	}
	temporary, err := os.MkdirTemp("", "screenshot-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	scheme, file := 1, filepath.Join(temporary, "page.png")
	if dark {
		scheme = 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), browsertest.Patience)
	defer cancel()
	command := exec.CommandContext(ctx, browser, "--no-sandbox", "--hide-scrollbars", "--force-prefers-reduced-motion",
		fmt.Sprintf("--window-size=%d,%d", width, height), fmt.Sprintf("--blink-settings=preferredColorScheme=%d", scheme), "--user-data-dir="+temporary, "--screenshot="+file, url)
	if output, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("take a screenshot: %w\n%s", err, output)
	}
	return os.ReadFile(file)
}
