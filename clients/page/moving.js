/** moving.js: a picture is moved and zoomed by the wheel, a pointer or two, and keys. */

const MOST = 200; // pixels an element

/**
 * `view` has the scales, in pixels an element, and the middle, in elements. `size()` is [rows, columns]; `fit` shows all; `moved` is called when the view is another, `letGo` when
 * a pointer leaves, `point(x, y)` when a place of the board is pointed at, `unpoint` when none is, `paint` when the board has or loses the focus.
 */
export function moving(board, view, { size, fit, moved, letGo, point, unpoint, paint }) {
    function settle() {
        const [rows, columns] = size();
        const least = Math.min(board.clientWidth / columns, board.clientHeight / rows) / 2;
        const scale = Math.max(1, least / Math.min(view.sx, view.sy));
        view.sx = Math.min(view.sx * scale, MOST);
        view.sy = Math.min(view.sy * scale, MOST);
        view.x = Math.min(columns, Math.max(0, view.x));
        view.y = Math.min(rows, Math.max(0, view.y));
        moved();
    }
    /** By a factor, about a point of the board, which stays where it is. */
    function zoom(factor, px = board.clientWidth / 2, py = board.clientHeight / 2) {
        const dx = px - board.clientWidth / 2, dy = py - board.clientHeight / 2;
        const [x, y] = [view.x + dx / view.sx, view.y + dy / view.sy];
        const most = Math.min(factor, MOST / Math.max(view.sx, view.sy));
        view.sx *= most;
        view.sy *= most;
        view.x = x - dx / view.sx;
        view.y = y - dy / view.sy;
        settle();
    }
    const touches = new Map();
    board.addEventListener("pointerdown", event => {
        board.setPointerCapture(event.pointerId);
        touches.set(event.pointerId, [event.offsetX, event.offsetY]);
    });
    board.addEventListener("pointermove", event => {
        const before = touches.get(event.pointerId);
        if (!before)
            return point(event.offsetX, event.offsetY);
        const others = [...touches].filter(([id]) => id !== event.pointerId);
        touches.set(event.pointerId, [event.offsetX, event.offsetY]);
        if (others.length === 1) {
            const [ox, oy] = others[0][1];
            const span = (x, y) => Math.max(10, Math.hypot(x - ox, y - oy));
            return zoom(span(event.offsetX, event.offsetY) / span(...before), ox, oy);
        }
        view.x -= (event.offsetX - before[0]) / view.sx;
        view.y -= (event.offsetY - before[1]) / view.sy;
        return settle();
    });
    for (const end of ["pointerup", "pointercancel"])
        board.addEventListener(end, event => { touches.delete(event.pointerId); letGo(); });
    board.addEventListener("pointerleave", () => unpoint());
    board.addEventListener("wheel", event => {
        event.preventDefault();
        zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), event.offsetX, event.offsetY);
    }, { passive: false });
    board.addEventListener("dblclick", event => zoom(2, event.offsetX, event.offsetY));
    board.addEventListener("keydown", event => {
        const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
        if (step) {
            view.x += step[0] * board.clientWidth / view.sx / 8;
            view.y += step[1] * board.clientHeight / view.sy / 8;
            settle();
        } else if ("+=".includes(event.key))
            zoom(1.5);
        else if (event.key === "-")
            zoom(1 / 1.5);
        else if (event.key === "0") {
            fit();
            settle();
        } else
            return;
        event.preventDefault();
        middle();
    });
    const middle = () => board.matches(":focus-visible") && point(board.clientWidth / 2, board.clientHeight / 2);
    board.addEventListener("focus", () => { paint(); middle(); });
    board.addEventListener("blur", () => { paint(); unpoint(); });
    return { zoom, isHeld: () => touches.size > 0 };
}
