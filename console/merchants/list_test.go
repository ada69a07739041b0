package merchants

import (
	"context"
	"html/template"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// allPayments is the right to see the payments of all Merchants.
type allPayments struct{ Rights }

func (allPayments) PaymentsVisible(_ context.Context, _ login.Person, merchants []*v1alpha1.Merchant, _ int) ([]bool, error) {
	visible := make([]bool, len(merchants))
	for i := range visible {
		visible[i] = true
	}
	return visible, nil
}

// crowdedPayments answers at once, except about the Merchants of one crowded tenant, whose turn does not come.
type crowdedPayments struct{ Payments }

func (crowdedPayments) PaidToday(ctx context.Context, merchants []*v1alpha1.Merchant) ([]template.HTML, error) {
	texts := make([]template.HTML, len(merchants))
	for i, merchant := range merchants {
		if merchant.Namespace != "crowd" {
			texts[i] = "1 paid today"
		}
	}
	<-ctx.Done()
	return texts, ctx.Err()
}

// A person sees Merchants of a tenant whose reads of payments wait for long, and behind them one of
// another tenant. The list has what was paid to the other tenant, and leaves out the totals that do
// not come in time.
func TestCountToday_CrowdOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Options{Rights: allPayments{}, Payments: crowdedPayments{}})
		rows := make([]merchantRow, PageSize)
		for i := range rows {
			rows[i].Merchant = &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "crowd", Name: "shop-" + strconv.Itoa(i)}}
		}
		victim := &rows[PageSize-1]
		victim.Namespace = "victim"
		ctx, cancel := context.WithTimeout(t.Context(), web.RequestTimeout)
		defer cancel()
		began := time.Now()
		err := h.countToday(ctx, login.Person{}, rows, len(rows))
		if took := time.Since(began); err != nil || took != totalsTimeout {
			t.Errorf("%v after %s", err, took)
		}
		if victim.Paid != "1 paid today" {
			t.Errorf("of the other tenant it has %q", victim.Paid)
		}
	})
}
