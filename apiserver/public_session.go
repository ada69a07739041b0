package apiserver

import (
	"net/http"

	"github.com/merchant-operator/merchant-operator/apiserver/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// publicSession is the answer of GET /api/v1/public/sessions/{id}: what the payer may see.
type publicSession struct {
	MerchantName string         `json:"merchantName"`
	AmountCents  int64          `json:"amountCents"`
	Status       session.Status `json:"status"`
}

// publicSession needs no key: the unguessable id is the capability.
func (a *api) publicSession(w http.ResponseWriter, r *http.Request) error {
	id, err := session.ParseID(r.PathValue("id"))
	if err != nil {
		return errNoSession
	}
	address, err := a.clients.Resolve(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
	if err != nil {
		return err
	}
	quota, read, err := a.store.PublicSession(r.Context(),
		store.PublicAdmission{Subject: clientaddr.Subject(address), Limit: a.publicLimit}, id)
	a.tellQuota(w, addressQuota, quota, err)
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, publicSession{
		MerchantName: read.MerchantName,
		AmountCents:  read.AmountCents,
		Status:       read.Status,
	})
}
