package payments

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// newDownloads returns a handler of downloads from a store.
func newDownloads(t *testing.T, from Store) *Handler {
	t.Helper()
	pages, err := web.NewPages(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{
		Store: from, Pages: pages, Log: slog.New(slog.DiscardHandler),
		KeyNames: func(context.Context, *v1alpha1.Merchant) (map[string]string, error) { return nil, nil },
	})
}

// newDownload returns the request of a person for a file.
func newDownload(ctx context.Context) *web.Request {
	return &web.Request{Request: httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), Merchant: &v1alpha1.Merchant{}}
}

// stuckFeed has one batch, and does not answer about the next one.
type stuckFeed struct{ Store }

// ReadEnded waits until ctx ends, but for the first batch.
func (stuckFeed) ReadEnded(ctx context.Context, _ store.Account, query store.EndedQuery) (store.EndedPage, error) {
	if query.Before == (feed.EntryID{}) {
		return store.EndedPage{Next: feed.EntryID{Millis: 1}}, nil
	}
	<-ctx.Done()
	return store.EndedPage{}, ctx.Err()
}

// A browser that goes away while its workbook is made leaves its places at once.
func TestExcel_ClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newDownloads(t, stuckFeed{})
		ctx, leave := context.WithCancel(t.Context())
		left := time.Now().Add(time.Second)
		time.AfterFunc(time.Second, leave)
		if err := h.Excel(httptest.NewRecorder(), newDownload(ctx)); !errors.Is(err, context.Canceled) || time.Since(left) > 0 {
			t.Errorf("the workbook ends %s after its browser has gone: %v", time.Since(left), err)
		}
	})
}

// unread is a connection whose client reads nothing.
type unread struct {
	*httptest.ResponseRecorder

	deadline time.Time
}

// SetWriteDeadline is a method of a connection.
func (u *unread) SetWriteDeadline(at time.Time) error {
	u.deadline = at
	return nil
}

// Write waits until the connection times out.
func (u *unread) Write([]byte) (int, error) {
	if u.deadline.IsZero() {
		return 0, errors.New("a write without a deadline")
	}
	<-time.After(time.Until(u.deadline))
	return 0, os.ErrDeadlineExceeded
}

// The workbooks of a person who does not read them have the places of two downloads, each for twenty seconds.
func TestExcel_NotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newDownloads(t, &longFeed{batches: 1})
		began := time.Now()
		for range 2 {
			go func() {
				if err := h.Excel(&unread{ResponseRecorder: httptest.NewRecorder()}, newDownload(t.Context())); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took < exportTimeout || took > exportTimeout+time.Second {
					t.Errorf("a workbook that nobody reads has a place for %s", took)
				}
			}()
			synctest.Wait()
		}
		if err := h.Excel(httptest.NewRecorder(), newDownload(t.Context())); !errors.Is(err, ErrTooManyDownloads) {
			t.Errorf("a third one: %v", err)
		}
		<-time.After(exportTimeout)
		synctest.Wait()
		end, err := h.Downloads.Begin("", "")
		if err != nil {
			t.Fatalf("later: %v", err)
		}
		end()
	})
}

// wordyFeed has a thousand orders with the longest names in each batch.
type wordyFeed struct {
	Store

	batches int
}

// ReadEnded returns the next batch.
func (f *wordyFeed) ReadEnded(context.Context, store.Account, store.EndedQuery) (page store.EndedPage, err error) {
	order := store.EndedSession{Session: session.Session{Status: session.Completed, Currency: "EUR", Charge: session.Charge{AmountCents: 1, OrderRef: strings.Repeat("𝄞", 255)}}}
	for range store.MaxEnded {
		page.Sessions = append(page.Sessions, order)
	}
	if f.batches--; f.batches > 0 {
		page.Next = feed.EntryID{Millis: uint64(f.batches)}
	}
	return page, nil
}

// A day of few lines and long texts has no workbook either: it is made in memory.
func TestExcel_LongTexts(t *testing.T) {
	for batches, want := range map[int]error{2: nil, 4: ErrTooManyLines} {
		h := newDownloads(t, &wordyFeed{batches: batches})
		answer := httptest.NewRecorder()
		err := h.Excel(&unlimited{answer}, newDownload(t.Context()))
		if !errors.Is(err, want) || (answer.Body.Len() > 0) != (want == nil) {
			t.Errorf("%d thousand lines: %v, and a file of %d bytes", batches, err, answer.Body.Len())
		}
	}
}

// unlimited is a connection whose client reads at once.
type unlimited struct{ *httptest.ResponseRecorder }

// SetWriteDeadline is a method of a connection.
func (unlimited) SetWriteDeadline(time.Time) error { return nil }
