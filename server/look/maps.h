/* Colour maps: 256 colours each, from the map's lower end to its upper one.
 *
 * Called by picture.c. Constant. */
#ifndef ARRAYD_SERVER_LOOK_MAPS_H
#define ARRAYD_SERVER_LOOK_MAPS_H

#include <stddef.h>
#include <stdint.h>

#define MAP_COUNT 10
extern const char *const map_names[MAP_COUNT + 1]; /* the last is NULL */
extern const uint32_t map_colours[MAP_COUNT][256]; /* 0xRRGGBB */

#endif
