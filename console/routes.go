package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/objects"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// handler has every route, with the right that it needs.
func (c *console) handler() http.Handler {
	r := routes{c, http.NewServeMux()}
	r.mux.Handle("GET /assets/", c.pages.Assets)
	r.open("GET "+login.SignInPath, c.login.SignIn)
	r.open("GET "+login.CallbackPath, c.login.Callback)
	r.open("GET "+login.SignedOutPath, c.signedOut)
	r.signedIn("POST /sign-out", c.login.SignOut)
	r.signedIn("POST /sign-out-everywhere", c.login.SignOutEverywhere)
	r.signedIn("GET /{$}", r.inTurn(c.merchants.List))
	r.signedIn("/", func(http.ResponseWriter, *http.Request, login.Person) error { return web.ErrNotFound })

	r.onMerchantInTurn("GET", "", rights.Get, c.merchants.Show)
	r.onMerchantInTurn("GET", "/payments", rights.ViewPayments, c.payments.List)
	r.onMerchantInTurn("GET", "/payments/{payment}", rights.ViewPayments, c.payments.Show)
	r.onMerchant("GET", "/payments.csv", rights.ViewPayments, c.payments.Export)
	r.onMerchant("GET", "/new-key", rights.IssueKeys, c.keys.ShowNew)
	r.onMerchant("POST", "/new-key", rights.IssueKeys, c.keys.Issue)
	r.onKey("GET", "/rotate", rights.RotateKeys, c.keys.ShowForm("key-rotate"))
	r.onKey("POST", "/rotate", rights.RotateKeys, c.keys.Rotate)
	r.onKey("GET", "/disable", rights.IssueKeys, c.keys.ShowForm("key-disable"))
	r.onKey("POST", "/disable", rights.IssueKeys, c.keys.Disable)
	r.onKey("GET", "/enable", rights.IssueKeys, c.keys.ShowForm("key-enable"))
	r.onKey("POST", "/enable", rights.IssueKeys, c.keys.Enable)
	r.onKey("GET", "/delete", rights.IssueKeys, c.keys.ShowForm("key-delete"))
	r.onKey("POST", "/delete", rights.IssueKeys, c.keys.Delete)
	r.onSpec("GET", "/allowlist", rights.EditAllowlist, c.allowlist.ShowForm)
	r.onSpec("POST", "/allowlist", rights.EditAllowlist, c.allowlist.Edit)
	r.onSpec("GET", "/webhook", rights.EditWebhook, c.webhook.ShowForm)
	r.onSpec("POST", "/webhook", rights.EditWebhook, c.webhook.Edit)
	r.onMerchant("POST", "/webhook/resume", rights.EditWebhook, c.webhook.Resume)
	r.onMerchant("GET", "/webhook/test", rights.EditWebhook, c.webhook.ShowTestEvent)
	r.onMerchant("POST", "/webhook/test", rights.EditWebhook, c.webhook.SendTestEvent)
	r.onSpec("GET", "/webhook/rotate-secret", rights.EditWebhook, c.webhook.ShowSecretForm)
	r.onSpec("POST", "/webhook/rotate-secret", rights.EditWebhook, c.webhook.RotateSigningSecret)
	r.onMerchant("GET", "/dead-letters/resend", rights.EditWebhook, c.webhook.ShowResendForm)
	r.onMerchant("POST", "/dead-letters/resend", rights.EditWebhook, c.webhook.ResendDeadLetters)
	return c.observe(c.protect(r.mux))
}

// routes adds handlers to mux. An error of a handler becomes a page (respondError).
type routes struct {
	*console

	mux *http.ServeMux
}

// open is for everybody.
func (r routes) open(pattern string, handle func(http.ResponseWriter, *http.Request) error) {
	method, route, known := strings.Cut(pattern, " ")
	if !known {
		method = "other"
	}
	r.mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
		req, span := r.tracer.StartRequest(req, false)
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		defer func() { span.EndRequest(method, route, recorder.status, "") }()
		err := r.admit(req)
		if err == nil {
			err = handle(recorder, req)
		}
		if err != nil {
			r.respondError(recorder, req, nil, err)
		}
	})
}

// personHandler handles a request of a person who has signed in.
type personHandler func(http.ResponseWriter, *http.Request, login.Person) error

// signedIn is for everybody who has signed in.
func (r routes) signedIn(pattern string, handle personHandler) {
	r.open(pattern, func(w http.ResponseWriter, req *http.Request) error {
		viewer, err := r.login.Current(req)
		if err != nil {
			return err
		}
		if err := handle(w, req, viewer); err != nil {
			r.respondError(w, req, &viewer, err)
		}
		return nil
	})
}

const (
	// maxPages bounds the pages in progress that read keys or payments, because each costs memory.
	maxPages = 16
	// maxPersonPages bounds such pages of one person, so that nobody takes all places.
	maxPersonPages = 4
	// turnTimeout is how long a page waits for its turn.
	turnTimeout = 2 * time.Second
)

// errTooManyPages means that a page did not get its turn in time.
var errTooManyPages = errors.New("too many pages are in progress")

// inTurn returns the handler of a page that costs memory: each waits for its turn before it reads anything.
func (r routes) inTurn(handle personHandler) personHandler {
	return func(w http.ResponseWriter, req *http.Request, viewer login.Person) error {
		ctx, cancel := context.WithTimeout(req.Context(), turnTimeout)
		defer cancel()
		end, err := r.turns.Await(ctx, viewer.User)
		if err != nil {
			return err
		}
		defer end()
		return handle(w, req, viewer)
	}
}

const merchantPath = "/merchants/{namespace}/{name}"

// merchantHandler handles a request about a Merchant.
type merchantHandler func(http.ResponseWriter, *web.Request) error

// keyHandler handles a request about an ApiKey of the Merchant.
type keyHandler func(http.ResponseWriter, *web.Request, *v1alpha1.ApiKey) error

// onMerchant is for people who may see the Merchant and have the verb on it. A Merchant that they may not see is missing.
func (r routes) onMerchant(method, path, verb string, handle merchantHandler) {
	r.signedIn(method+" "+merchantPath+path, r.withMerchant(verb, handle))
}

// onMerchantInTurn is onMerchant for a page that costs memory.
func (r routes) onMerchantInTurn(method, path, verb string, handle merchantHandler) {
	r.signedIn(method+" "+merchantPath+path, r.inTurn(r.withMerchant(verb, handle)))
}

// withMerchant lets people pass who may see the Merchant and have the verb on it.
func (r routes) withMerchant(verb string, handle merchantHandler) personHandler {
	return func(w http.ResponseWriter, req *http.Request, viewer login.Person) error {
		key := client.ObjectKey{Namespace: req.PathValue("namespace"), Name: req.PathValue("name")}
		merchant, err := r.visibleMerchant(req.Context(), viewer, key)
		if err != nil {
			return err
		}
		allowed, err := r.rights.May(req.Context(), rights.NewSubject(viewer), verb, key.Namespace, key.Name)
		if err != nil {
			return err
		}
		switch {
		case allowed:
			return handle(w, &web.Request{Request: req, Viewer: viewer, Merchant: merchant})
		case verb == rights.ViewPayments: // what a person may not see is missing
			return web.ErrNotFound
		}
		return fmt.Errorf("%w: %s", rights.ErrNone, verb)
	}
}

// visibleMerchant returns a Merchant that the person may see. Errors: web.ErrNotFound, objects.ErrUnavailable, those of may. A missing Merchant is
// the same as one that they may not see.
func (c *console) visibleMerchant(ctx context.Context, p login.Person, key client.ObjectKey) (*v1alpha1.Merchant, error) {
	if watched := c.options.WatchNamespaces; len(watched) > 0 && !slices.Contains(watched, key.Namespace) {
		return nil, web.ErrNotFound
	}
	if sees, err := c.rights.May(ctx, rights.NewSubject(p), rights.Get, key.Namespace, key.Name); err != nil || !sees {
		return nil, cmp.Or(err, web.ErrNotFound)
	}
	var merchant v1alpha1.Merchant
	if err := c.objects.Read(ctx, key, &merchant); err != nil {
		return nil, err
	}
	return &merchant, nil
}

// onSpec is onMerchant for a change of the spec. A tool that applies the Merchant from Git would undo it.
func (r routes) onSpec(method, path, verb string, handle merchantHandler) {
	r.onMerchant(method, path, verb, func(w http.ResponseWriter, req *web.Request) error {
		if err := objects.CheckManager("Merchant", req.Merchant); err != nil {
			return err
		}
		return handle(w, req)
	})
}

// onKey is onMerchant for one of its ApiKeys. A form names the UID that the person has seen: another ApiKey may have the name now.
func (r routes) onKey(method, path, verb string, handle keyHandler) {
	r.onMerchant(method, "/keys/{key}"+path, verb, func(w http.ResponseWriter, req *web.Request) error {
		key, err := r.objects.ReadKey(req.Context(), req.Merchant, req.PathValue("key"))
		if err != nil {
			return err
		}
		if seen := req.PostFormValue("uid"); seen != "" && seen != string(key.UID) {
			return keys.ErrReplaced
		}
		return handle(w, req, key)
	})
}
