package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/objects"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// gate lets those pass to a handler who may call it. It is safe for concurrent use.
type gate struct {
	middleware *middleware
	problems   *problems
	pages      *web.Pages
	tracer     *tracing.Tracer // of requests; nil: none

	login      *login.Handler
	rights     *rights.Reviewer
	objects    *objects.Client
	namespaces []string      // whose Merchants are shown; empty: all
	turns      *web.Inflight // pages that read keys or payments and are not rendered yet
	shown      *lru.Cache    // []client.ObjectKey: a Merchant of each namespace of which the last list of a person showed some, by user
	unsent     *web.Inflight // pages that read keys or payments, until their client has read them
	signIns    *web.Inflight // sign-ins for which the provider is asked
	// turnTimeout is how long a page or a sign-in waits for its turn.
	turnTimeout time.Duration
}

// routes adds handlers to mux. An error of a handler becomes a page.
type routes struct {
	*gate

	mux *http.ServeMux
}

// open is for everybody.
func (r *routes) open(pattern string, handle func(http.ResponseWriter, *http.Request) error) {
	method, route, known := strings.Cut(pattern, " ")
	if !known {
		method = "other"
	}
	r.mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
		req, span := r.tracer.StartRequest(req, false)
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		defer func() { span.EndRequest(method, route, recorder.status, "") }()
		err := r.middleware.admit(req)
		if err == nil {
			err = handle(recorder, req)
		}
		if err != nil {
			r.problems.respond(recorder, req, nil, err)
		}
	})
}

// inAddressTurn returns the handler of a request with which anybody makes the console ask the identity provider. Its person is
// the client address, and its tenant the address's network: so strangers, from however many addresses of a network, leave room
// for others.
func (g *gate) inAddressTurn(handle func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, req *http.Request) error {
		address, err := g.middleware.clientAddress(req)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(req.Context(), g.turnTimeout)
		defer cancel()
		end, err := g.signIns.Await(ctx, clientaddr.LimitKey(address), clientaddr.Network(address).String())
		if err != nil {
			return err
		}
		defer end()
		return handle(w, req)
	}
}

// personHandler handles a request of a person who has signed in.
type personHandler func(http.ResponseWriter, *http.Request, login.Person) error

// signedIn is for everybody who has signed in.
func (r *routes) signedIn(pattern string, handle personHandler) {
	r.open(pattern, func(w http.ResponseWriter, req *http.Request) error {
		viewer, err := r.login.Current(req)
		if err != nil {
			return err
		}
		if err := handle(w, req, viewer); err != nil {
			r.problems.respond(w, req, &viewer, err)
		}
		return nil
	})
}

const (
	// maxPages bounds the pages that read keys or payments and are not rendered yet, because each costs memory.
	maxPages = 16
	// maxPersonPages bounds such pages of one person, also those that are rendered and not sent.
	maxPersonPages = 4
	// maxUnsentPages bounds such pages of all, also those that are rendered and not sent. A rendered page is at most
	// a few hundred kilobytes.
	maxUnsentPages = 256
	// maxShown bounds the people whose namespaces are known, and maxShownNamespaces the namespaces of each: about 200
	// bytes for a person.
	maxShown, maxShownNamespaces = 4096, 8
	// maxSignIns bounds the sign-ins in progress at the OpenID provider, and maxAddressSignIns the sign-ins of one client address
	// among them. A sign-in may take ten seconds and 60 KiB.
	maxSignIns, maxAddressSignIns = 64, 8
	// defaultTurnTimeout is how long a page or a sign-in waits for its turn.
	defaultTurnTimeout = 2 * time.Second
)

// inTurn returns the handler of a page that costs memory: each waits for its turn before it reads anything. Its turn ends
// before the page is sent: a client that reads slowly holds one rendered page, and a place of its own person.
func (g *gate) inTurn(handle personHandler) personHandler {
	return func(w http.ResponseWriter, req *http.Request, viewer login.Person) error {
		ctx, cancel := context.WithTimeout(req.Context(), g.turnTimeout)
		defer cancel()
		return g.send(ctx, w, viewer, []string{req.PathValue("namespace")}, func(page http.ResponseWriter) error {
			return g.render(ctx, page, req, viewer, handle)
		})
	}
}

// listHandler finds Merchants for a list. It returns one of them for each tenant, none if there are
// no Merchants, and what writes the page, which costs little memory.
type listHandler func(*http.Request, login.Person) (merchants []client.ObjectKey, show func(http.ResponseWriter) error, err error)

// listInTurn is inTurn for a list of Merchants, whose path names no tenant. Lists of people whose
// namespaces are not known yet have the share of one tenant together while they find their
// Merchants. From then on a list has a place of a tenant that it shows: it may wait for that
// tenant's reads, and for its client. So the people and payments of one tenant, however many, leave
// room for the lists of others.
func (g *gate) listInTurn(find listHandler) personHandler {
	return func(w http.ResponseWriter, req *http.Request, viewer login.Person) error {
		merchants, show, err := g.find(req, viewer, find)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(req.Context(), g.turnTimeout)
		defer cancel()
		return g.send(ctx, w, viewer, namespaces(merchants), show)
	}
}

// find has the handler find a list in its turn, which is a turn of a tenant that the person's last list showed. It
// returns a Merchant of at least one tenant.
func (g *gate) find(req *http.Request, viewer login.Person, find listHandler) (merchants []client.ObjectKey, show func(http.ResponseWriter) error, err error) {
	ctx, cancel := context.WithTimeout(req.Context(), g.turnTimeout)
	defer cancel()
	known := []client.ObjectKey{{Namespace: newcomers}}
	if shown, ok := g.shown.Get(viewer.User); ok {
		known = shown.([]client.ObjectKey) //nolint:forcetypeassert // nothing else is added
	}
	end, err := g.turns.Await(ctx, viewer.User, namespaces(known)...)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	if merchants, show, err = find(req, viewer); err != nil {
		return nil, nil, err
	}
	if len(merchants) == 0 { // also by a search: nobody leaves the share of their tenant so
		merchants = g.stillSeen(req.Context(), viewer, known)
	}
	if len(merchants) == 0 {
		merchants = []client.ObjectKey{{Namespace: nobodys}}
	}
	g.shown.Add(viewer.User, slices.Clone(merchants[:min(len(merchants), maxShownNamespaces)]))
	return merchants, show, nil
}

// stillSeen returns the known Merchants that the person may still see. A person who has lost the rights on a tenant's Merchants
// has no more turns of that tenant.
func (g *gate) stillSeen(ctx context.Context, viewer login.Person, known []client.ObjectKey) (seen []client.ObjectKey) {
	for _, key := range known {
		if key.Name != "" && g.checkSeen(ctx, viewer, key) == nil { // without a name it is of no tenant
			seen = append(seen, key)
		}
	}
	return seen
}

func namespaces(list []client.ObjectKey) (names []string) {
	for _, object := range list {
		names = append(names, object.Namespace)
	}
	return names
}

// Tenants of lists that have no namespace: of people who were not here before, and of people who were and may see no
// Merchant. No namespace has these names.
const newcomers, nobodys = "", "-"

// send waits until ctx ends for a place of one of the tenants, then has a page written, and sends it.
func (g *gate) send(ctx context.Context, w http.ResponseWriter, viewer login.Person, tenants []string, write func(http.ResponseWriter) error) error {
	end, err := g.unsent.Await(ctx, viewer.User, tenants...)
	if err != nil {
		return err
	}
	defer end()
	page := &renderedPage{ResponseWriter: w}
	if err := write(page); err != nil {
		return err
	}
	page.send()
	return nil
}

// render has the handler write a page in its turn, for which it waits until ctx ends.
func (g *gate) render(ctx context.Context, page http.ResponseWriter, req *http.Request, viewer login.Person, handle personHandler) error {
	end, err := g.turns.Await(ctx, viewer.User, req.PathValue("namespace"))
	if err != nil {
		return err
	}
	defer end()
	return handle(page, req, viewer)
}

// renderedPage keeps a response until it is sent.
type renderedPage struct {
	http.ResponseWriter

	status int
	body   []byte
}

// WriteHeader keeps the status.
func (p *renderedPage) WriteHeader(status int) { p.status = status }

// Write keeps the bytes.
func (p *renderedPage) Write(b []byte) (int, error) {
	p.body = append(p.body, b...)
	return len(b), nil
}

// send writes the response to the client.
func (p *renderedPage) send() {
	p.ResponseWriter.WriteHeader(cmp.Or(p.status, http.StatusOK))
	_, _ = p.ResponseWriter.Write(p.body) // the client may have gone
}

const merchantPath = "/merchants/{namespace}/{name}"

// merchantHandler handles a request about a Merchant.
type merchantHandler func(http.ResponseWriter, *web.Request) error

// keyHandler handles a request about an ApiKey of the Merchant.
type keyHandler func(http.ResponseWriter, *web.Request, *v1alpha1.ApiKey) error

// onMerchant is for people who may see the Merchant and have the verb on it. A Merchant that they may not see is missing.
func (r *routes) onMerchant(method, path, verb string, handle merchantHandler) {
	r.signedIn(method+" "+merchantPath+path, r.withMerchant(verb, handle))
}

// onMerchantInTurn is onMerchant for a page that costs memory.
func (r *routes) onMerchantInTurn(method, path, verb string, handle merchantHandler) {
	r.signedIn(method+" "+merchantPath+path, r.ifSeen(r.inTurn(r.withMerchant(verb, handle))))
}

// ifSeen lets people pass who may see the Merchant. It is asked before they wait for a place of its tenant: else strangers,
// however many, would have these places until the Kubernetes API has said that they may not see it.
func (g *gate) ifSeen(handle personHandler) personHandler {
	return func(w http.ResponseWriter, req *http.Request, viewer login.Person) error {
		if err := g.checkSeen(req.Context(), viewer, merchantKey(req)); err != nil {
			return err
		}
		return handle(w, req, viewer)
	}
}

// merchantKey is the Merchant that the path names.
func merchantKey(req *http.Request) client.ObjectKey {
	return client.ObjectKey{Namespace: req.PathValue("namespace"), Name: req.PathValue("name")}
}

// withMerchant lets people pass who may see the Merchant and have the verb on it.
func (g *gate) withMerchant(verb string, handle merchantHandler) personHandler {
	return func(w http.ResponseWriter, req *http.Request, viewer login.Person) error {
		key := merchantKey(req)
		merchant, err := g.visibleMerchant(req.Context(), viewer, key)
		if err != nil {
			return err
		}
		allowed, err := g.rights.May(req.Context(), rights.NewSubject(viewer), verb, key.Namespace, key.Name)
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

// visibleMerchant returns a Merchant that the person may see. Errors: web.ErrNotFound, objects.ErrUnavailable, the errors of rights.Reviewer. A missing Merchant is
// the same as one that they may not see.
func (g *gate) visibleMerchant(ctx context.Context, p login.Person, key client.ObjectKey) (*v1alpha1.Merchant, error) {
	if err := g.checkSeen(ctx, p, key); err != nil {
		return nil, err
	}
	var merchant v1alpha1.Merchant
	if err := g.objects.Read(ctx, key, &merchant); err != nil {
		return nil, err
	}
	return &merchant, nil
}

// checkSeen returns web.ErrNotFound unless the person may see the Merchant, or an error of rights.Reviewer.
func (g *gate) checkSeen(ctx context.Context, p login.Person, key client.ObjectKey) error {
	if watched := g.namespaces; len(watched) > 0 && !slices.Contains(watched, key.Namespace) {
		return web.ErrNotFound
	}
	if sees, err := g.rights.May(ctx, rights.NewSubject(p), rights.Get, key.Namespace, key.Name); err != nil || !sees {
		return cmp.Or(err, web.ErrNotFound)
	}
	return nil
}

// onSpec is onMerchant for a change of the spec. A tool that applies the Merchant from Git would undo it.
func (r *routes) onSpec(method, path, verb string, handle merchantHandler) {
	r.onMerchant(method, path, verb, func(w http.ResponseWriter, req *web.Request) error {
		if err := objects.CheckManager("Merchant", req.Merchant); err != nil {
			return err
		}
		return handle(w, req)
	})
}

// onKey is onMerchant for one of its ApiKeys. A form names the UID that the person has seen: another ApiKey may have the name now.
func (r *routes) onKey(method, path, verb string, handle keyHandler) {
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

func (g *gate) signedOut(w http.ResponseWriter, r *http.Request) error {
	return g.pages.Render(w, r, http.StatusOK, "signed-out", web.View{Title: g.pages.Words(r.Context()).Text("signedout.title")})
}
